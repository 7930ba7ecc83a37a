"""``decaysketch build``: sketches from files of observations."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import typer
from rich.table import Table

from decaysketch.cli.dialect import TextOptions
from decaysketch.cli.file_builder import fold
from decaysketch.cli.output import (
    AsJson,
    CommandError,
    human_bytes,
    number,
    refuse_uri,
    reporting_errors,
    show,
    warn,
    write_whole,
)
from decaysketch.cli.recipes import (
    Accuracy,
    ApiKeyFile,
    CaFile,
    IdKeyFile,
    Parameters,
    TimeFormat,
    TimeoutS,
    TimeZone,
    api_client,
    mapping_from_options,
    names,
    read_id_key,
    recipe_from_options,
    recipe_from_server,
    taking_parameters,
)
from decaysketch.cli.tables import FORMATS, files_of, first_texts, format_of
from decaysketch.core.params import SketchParams
from decaysketch.core.sizing import DEFAULT_BY_KEY, accuracy_of, capacity_for
from decaysketch.core.text_values import Numerals
from decaysketch.errors import TimeUnitWarning
from decaysketch.families import DEFAULT, FAMILIES, Family, Recipe
from decaysketch.tables import KeyedBuilder
from decaysketch.tables.texts import holds_numbers, looks_like_numbers, numerals_of

__all__ = ["build", "file_name"]

_SHOWN = 20  # keys in the table
_LONGEST_NAME = 180
_FEW_DUPLICATES = 2.0  # times the error of a sketch
_DEFAULTS: dict[str, Any] = {}


@taking_parameters(_DEFAULTS)
def build(
    logs: Annotated[
        list[Path], typer.Argument(help="Parquet, CSV, NDJSON or Arrow files, or folders.")
    ],
    out: Annotated[
        Path, typer.Option(help="The sketch file; with --by the folder of sketches, one a key.")
    ],
    by: Annotated[str, typer.Option(help="Key columns, with commas: a sketch for each key.")] = "",
    format: Annotated[
        str | None, typer.Option(help=f"{', '.join(FORMATS)}; by suffix if not given.")
    ] = None,
    time_column: Annotated[str, typer.Option(help="The time of the event.")] = "time",
    fallback_time_column: Annotated[str | None, typer.Option(help="Replaces a null time.")] = None,
    column_unit: Annotated[
        str | None,
        typer.Option(help="Unit of times that are plain numbers; the stream's if not given."),
    ] = None,
    time_zone: TimeZone = None,
    time_format: TimeFormat = None,
    separator: Annotated[
        str | None,
        typer.Option(help="The separator of CSV cells, or 'tab'; from the heading if not given."),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(help="The decimal mark of numbers as text; detected if it is certain."),
    ] = None,
    thousands: Annotated[
        str | None, typer.Option(help="The thousands mark of numbers as text; likewise.")
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of text files, such as latin-1; from the first bytes if not given."
        ),
    ] = None,
    id_columns: Annotated[
        str,
        typer.Option(
            help="Columns that together identify an observation, with commas; in the same order "
            "for all sketches that are merged."
        ),
    ] = "id",
    key_columns: Annotated[
        str, typer.Option(help="Columns that together are the key, if keys are counted.")
    ] = "key",
    site_column: Annotated[
        str | None, typer.Option(help="The site that counts them; one site if not given.")
    ] = None,
    source_column: Annotated[
        str, typer.Option(help="The source of the element, if sources number elements.")
    ] = "source",
    sequence_column: Annotated[
        str, typer.Option(help="Integers by which a source numbers its elements; likewise.")
    ] = "sequence",
    text_columns: Annotated[
        str,
        typer.Option(
            help="Columns that name rows and are read as text, with commas: CSV cells as "
            "written, so that 012 is not 12."
        ),
    ] = "",
    value_column: Annotated[
        str, typer.Option(help="The measured number, or label; '' for none.")
    ] = "value",
    weight_column: Annotated[
        str | None, typer.Option(help="Integer weights; every weight is 1 if not given.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(FAMILIES)}; {DEFAULT} by default."),
    ] = None,
    params: Annotated[
        Path | None, typer.Option(help="Parameters as JSON, instead of the options below.")
    ] = None,
    from_server: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="URL STREAM", help="Use the parameters of an aggregator's stream."),
    ] = None,
    decay: Annotated[
        str | None,
        typer.Option(
            help="The decay, if the family fixes one, such as 'exponential(half_life=15min)', "
            "'floor(w / (1 + x/60))' or JSON; or a file that contains it."
        ),
    ] = None,
    accuracy: Accuracy = None,
    *,
    parameters: Parameters,
    id_key_file: IdKeyFile = None,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 30.0,
    now: Annotated[
        int | None, typer.Option(help="The time for sketches that have a clock.")
    ] = None,
    site: Annotated[
        str | None,
        typer.Option(help="If keys are counted: the site of all rows, 0 if not given."),
    ] = None,
    epoch: Annotated[
        int,
        typer.Option(help="Likewise: another one for each part of a site's rows, built by itself."),
    ] = 0,
    any_time: Annotated[
        bool,
        typer.Option(
            "--any-time", help="Accept times that are unlikely in their unit, with a warning."
        ),
    ] = False,
    quarantine: Annotated[
        Path | None,
        typer.Option(
            help="File for rejected rows, with the reason, as NDJSON; without it, one ends the "
            "build."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing output.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build sketches from files, in any order, with any duplicates in them."""
    with reporting_errors():
        keys, texts = names(by), names(text_columns)
        for place in (out, quarantine):
            if place is not None:
                refuse_uri(place)
                if place.exists() and not overwrite:
                    raise CommandError(f"{place} is there already; replace it with --overwrite")
        options = TextOptions(separator, encoding)
        options.check()
        first = _first_values(logs, format, value_column, options)
        numerals = _numerals(decimal, thousands, first)
        id_key = read_id_key(id_key_file)
        recipe: Recipe
        if from_server is not None:
            if parameters or any(v is not None for v in (family, params, decay, accuracy)):
                raise CommandError("--from-server gives all parameters; give no others")
            with api_client(from_server[0], api_key_file, timeout_s, ca_file) as client:
                recipe = recipe_from_server(client, from_server[1], id_key)
        else:
            defaults = dict(_DEFAULTS)
            if params is None and "value_type" not in parameters and value_column:
                chosen = FAMILIES.get(family or DEFAULT)
                if chosen is not None and _takes_labels(chosen) and _are_labels(first, numerals):
                    defaults["value_type"] = "label"
            recipe = recipe_from_options(
                family, params, decay, id_key, parameters, defaults, accuracy=accuracy,
                by_key=bool(keys),
            )  # fmt: skip
        files = [file for given in logs for file in files_of(given, format)]
        mapping = mapping_from_options(
            recipe, ids=id_columns, key=key_columns, site=site_column, source=source_column,
            sequence=sequence_column,
            time=time_column, fallback_time=fallback_time_column, value=value_column,
            weight=weight_column, time_unit=column_unit,
        )  # fmt: skip
        mapping = replace(
            mapping, time_zone=time_zone, time_format=time_format, decimal=numerals.decimal,
            thousands=numerals.thousands,
        )  # fmt: skip
        builder = KeyedBuilder(
            recipe, mapping, keys, now=now, site=0 if site is None else site, epoch=epoch,
            check_units=not any_time, check_ids=True,
            refused="raise" if quarantine is None else "count",
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TimeUnitWarning)  # said below, as a line
            refused = fold(
                builder, files, format, texts=texts, options=options, quarantine=quarantine
            )
        nothing = _refuse_nothing(builder, out, refused, quarantine)
        _write(builder, out, quarantine, refused, as_json)
        if nothing:
            raise CommandError(f"no rows in {len(files)} files; {out} is an empty sketch")


def _takes_labels(family: Family) -> bool:
    return any("label" in option.choices for option in family.options)


class _First(NamedTuple):
    """The first values in the first file, if they are texts."""

    path: Path
    column: str
    texts: pa.Array


def _first_values(
    logs: list[Path], format: str | None, column: str, options: TextOptions
) -> _First | None:
    if not column or not logs[0].exists():
        return None
    path = files_of(logs[0], format)[0]
    chosen = format or format_of(path)
    if chosen not in FORMATS or not path.is_file():
        return None  # what is no file, such as a pipe, is read once
    texts = first_texts(path, chosen, column, options)
    return None if texts is None else _First(path, column, texts)


def _numerals(decimal: str | None, thousands: str | None, first: _First | None) -> Numerals:
    """Return the number format, from the options or from unambiguous first values."""
    if decimal is None and thousands is None and first is not None:
        found = None if holds_numbers(first.texts) else numerals_of(first.texts)
        if found is not None:
            said = f"--decimal '{found.decimal}'"
            said += f" --thousands {found.thousands!r}" if found.thousands else ""
            warn(f"{first.path}: numbers of column {first.column!r} are read with {said}")
            return found
    numerals = Numerals(decimal or ".", thousands or "")
    numerals.check()
    return numerals


def _are_labels(first: _First | None, numerals: Numerals) -> bool:
    """Return whether values are labels, from the values alone.

    Raises:
        CommandError: they look like numbers in another number format.
    """
    if first is None or holds_numbers(first.texts, numerals):
        return False
    if (found := looks_like_numbers(first.texts)) is not None:
        raise CommandError(
            f"{first.path}: column {first.column!r} has {found!r}, which looks like a number; "
            "--decimal and --thousands say how numbers are written, --value-type label keeps texts "
            "as they are"
        )
    return True


def _refuse_nothing(
    builder: KeyedBuilder, out: Path, refused: int, quarantine: Path | None
) -> bool:
    """Report an error if no row was accepted. Return whether there were no rows at all: then an
    empty sketch is written, unless it would replace something.

    Raises:
        CommandError: all rows were rejected, or the output exists already.
    """
    if builder.totals["rows"]:
        return False
    if refused:
        raise CommandError(
            f"no row was accepted, and {refused:,} were refused (see {quarantine}); {out} is as it "
            "was"
        )
    if out.exists() or builder.keys:
        raise CommandError(f"there are no rows; {out} is as it was")
    return True


def file_name(key: tuple[Any, ...]) -> str:
    """Return the file name for a key: its parts, quoted, with commas, or a hash if that is long."""
    name = ",".join(map(_file_name_part, key))
    if len(name) > _LONGEST_NAME:
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"{name}.sketch"


def _file_name_part(part: Any) -> str:
    if part is None:
        return "%null"  # no text is quoted so
    text = part.hex() if isinstance(part, bytes) else str(part)
    return quote(text, safe="").replace(".", "%2E") or "%empty"


def _indexed(folder: Path) -> set[str]:
    """Return the sketch files that an earlier build wrote into a folder, by its index."""
    try:
        content = json.loads((folder / "index.json").read_bytes())
        found = {Path(each["file"]).name for each in content["sketches"]}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return set()  # none, or not by this program
    return {name for name in found if name.endswith(".sketch")}


def _write(
    builder: KeyedBuilder, out: Path, quarantine: Path | None, refused: int, as_json: bool
) -> None:
    table = Table(*builder.keys, "rows read", "held", "bytes", "digest")
    written: list[dict[str, Any]] = []
    if builder.keys:
        out.mkdir(parents=True, exist_ok=True)
    elif not builder.sketches:
        builder.sketches[()] = builder.recipe.empty(builder.now)
    counts = builder.counts
    for key, sketch in builder.sketches.items():
        blob = sketch.to_bytes()
        path = out / file_name(key) if builder.keys else out
        write_whole(path, blob)
        rows = int(counts[key][0]) if key in counts else 0
        plain = [part if isinstance(part, int | str) or part is None else str(part) for part in key]
        written.append(
            {
                "key": plain, "file": str(path), "rows": rows, "held": len(sketch),
                "bytes": len(blob), "digest": sketch.digest(),
            }
        )  # fmt: skip
        if len(written) <= _SHOWN:
            shown = [str(part) for part in plain]
            cells = (
                number(rows),
                number(len(sketch)),
                human_bytes(len(blob)),
                sketch.digest()[:12],
            )
            table.add_row(*shown, *cells)
    content: dict[str, Any] = {"recipe": builder.recipe.to_dict(), "keys": list(builder.keys)}
    content["columns"] = builder.kinds  # which a later build has to read alike
    if quarantine is not None:
        content["refused"] = refused
    content["sketches"] = written
    if builder.keys:
        before = _indexed(out)
        write_whole(out / "index.json", json.dumps(content, indent=1).encode())
        for stale in before - {Path(each["file"]).name for each in written}:
            (out / stale).unlink(missing_ok=True)
    notes = []
    if len(written) > _SHOWN:
        notes.append(f"and {len(written) - _SHOWN:,} more")
    if builder.kinds:
        held = ", ".join(f"{name} as {kind}" for name, kind in builder.kinds.items())
        notes.append(f"read {held}")
    if quarantine is not None:
        rows_refused = "1 row" if refused == 1 else f"{refused:,} rows"
        notes.append(f"{rows_refused} refused: see {quarantine}")
    if not builder.keys and (duplicates := _duplicates(builder)) is not None:
        content["duplicates"] = duplicates.share
        content["duplicates_error"] = duplicates.error
        notes.append(duplicates.said)
    if not builder.keys and (said := _as_small(builder) or sketch.snapshot().advice):
        content["advice"] = said
        notes.append(said)
    table.caption = "\n".join(notes) or None
    show(as_json, content, table)


class _Duplicates(NamedTuple):
    """The share of duplicates among rows, its error at 95 %, and the sentence for it."""

    share: float
    error: float
    said: str


def _duplicates(builder: KeyedBuilder) -> _Duplicates | None:
    """Return how many rows in the log were duplicates, and whether a sketch is worthwhile. None:
    the family cannot tell.

    A plain row count is off by the share of duplicates. A sketch is off by the error that its
    capacity leaves. With fewer duplicates than that, a plain aggregate is as close.
    """
    sketch, params = builder.sketches[()], builder.recipe.params
    fed, rows = sketch.snapshot().fed, builder.totals["rows"]
    if not isinstance(params, SketchParams) or not fed.observations or not rows:
        return None
    excess = max(rows / fed.observations - 1.0, 0.0)
    share = excess / (1.0 + excess)
    error = 0.0 if fed.exact else accuracy_of(params.capacity)
    said = f"{100 * share:.1f} % of {rows:,} rows are duplicates"
    if error:  # in 19 of 20 logs, as of the number of observations
        said = f"about {said}, within {100 * error * (1.0 - share):.1f} points"
    if error and excess < _FEW_DUPLICATES * error:
        said += (
            f": counting every row is off by {100 * excess:.1f} %, and this sketch by up to "
            f"{100 * error:.1f} % of a sum over all rows (more over a part); a plain aggregate is "
            "as close"
        )
    return _Duplicates(round(share, 4), round(error * (1.0 - share), 4), said)


def _as_small(builder: KeyedBuilder) -> str | None:
    """Report that a sketch has discarded nothing, so that the log without duplicates is as small,
    and name a smaller option. None: it has, or could not.
    """
    sketch, params = builder.sketches[()], builder.recipe.params
    fed = sketch.snapshot().fed
    smaller = capacity_for(DEFAULT_BY_KEY)
    if not (isinstance(params, SketchParams) and fed.exact and len(sketch)):
        return None
    rows = "1 observation" if fed.observations == 1 else f"{fed.observations:,} observations"
    said = f"{rows}, nothing discarded: the log, each once, is as small"
    if len(sketch) <= smaller or params.capacity <= smaller:
        return said
    shrunk = sketch.copy()
    shrunk.resize(smaller)
    size = human_bytes(len(shrunk.to_bytes()))
    return f"{said}; --accuracy {100 * DEFAULT_BY_KEY:g}% would give {size}"
