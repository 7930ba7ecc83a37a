"""``decaysketch build``: sketches from files of observations."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import typer
from rich.table import Table

from decaysketch.cli.file_builder import fold
from decaysketch.cli.first_rows import First, check_no_types, numerals_from, recipe_from_rows
from decaysketch.cli.options import (
    Columns,
    Parameters,
    generated,
    group,
    mapping_from_options,
    names,
)
from decaysketch.cli.output import (
    AsJson,
    CommandError,
    human_bytes,
    number,
    refuse_uri,
    reporting_errors,
    show,
    write_whole,
)
from decaysketch.cli.recipes import (
    ApiKeyFile,
    CaFile,
    Configuration,
    TimeoutS,
    api_client,
    read_id_key,
    recipe_from_server,
)
from decaysketch.cli.tables import Files, files_of, format_of
from decaysketch.core.params import SketchParams
from decaysketch.core.sizing import DEFAULT_BY_KEY, accuracy_of, capacity_for
from decaysketch.errors import TimeUnitWarning
from decaysketch.families import Recipe
from decaysketch.tables import KeyedBuilder
from decaysketch.tables.records import ALL

__all__ = ["build", "file_name"]

_SHOWN = 20  # keys in the table
_LONGEST_NAME = 180
_FEW_DUPLICATES = 2.0  # times the error of a sketch
_DEFAULTS: dict[str, Any] = {}
_COLUMNS = {
    "time": "time", "ids": "id", "key": "key", "source": "source", "sequence": "sequence",
    "value": "value",
}  # fmt: skip


@group
class Output(NamedTuple):
    """Options for the output."""

    out: Annotated[
        Path, typer.Option(help="The sketch file, or with --by a folder with one sketch per key.")
    ]
    quarantine: Annotated[
        Path | None,
        typer.Option(
            help="File for rejected rows, with the reason, as NDJSON; without it, a rejected row "
            "ends the build."
        ),
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")] = False
    as_json: AsJson = False

    def check_free(self) -> None:
        """Reject existing output."""
        for place in (self.out, self.quarantine):
            if place is not None:
                refuse_uri(place)
                if place.exists() and not self.overwrite:
                    raise CommandError(f"{place} exists; --overwrite replaces it")


@group
class Server(NamedTuple):
    """Options for an aggregator whose stream gives the parameters."""

    from_server: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="URL STREAM", help="Use the parameters of an aggregator's stream."),
    ] = None
    api_key_file: ApiKeyFile = None
    ca_file: CaFile = None
    timeout_s: TimeoutS = 30.0


@group
class Rows(NamedTuple):
    """Options for the rows with any columns."""

    now: Annotated[int | None, typer.Option(help="The time for sketches that have a clock.")] = None
    site: Annotated[
        str | None,
        typer.Option(help="If keys are counted: the source of all rows, default 0."),
    ] = None
    epoch: Annotated[
        int,
        typer.Option(
            help="If keys are counted: the number of this build. Use another number for each part "
            "of a source's rows that you build separately."
        ),
    ] = 0
    any_time: Annotated[
        bool,
        typer.Option(
            "--any-time", help="Accept times that are unlikely in their unit, with a warning."
        ),
    ] = False


@generated(_DEFAULTS, _COLUMNS)
def build(
    logs: Annotated[
        list[Path], typer.Argument(help="Parquet, CSV, NDJSON or Arrow files, or folders.")
    ],
    output: Output,
    by: Annotated[str, typer.Option(help="Key columns, with commas: a sketch for each key.")] = "",
    *,
    files: Files,
    columns: Columns,
    configuration: Configuration,
    parameters: Parameters,
    server: Server,
    rows: Rows,
) -> None:
    """Build sketches from files, in any order, with any duplicates in them."""
    with reporting_errors():
        output.check_free()
        options = files.text_options()
        keys = names(by)
        first = _first(logs, files, columns, keys)
        numerals = numerals_from(columns, first)
        if server.from_server is not None:
            recipe = _recipe_of(server, configuration, parameters, columns)
        else:
            recipe = recipe_from_rows(
                configuration, parameters, columns, first, _DEFAULTS, numerals=numerals,
                by_key=bool(keys),
            )  # fmt: skip
        mapping = mapping_from_options(recipe, columns)
        mapping = replace(mapping, decimal=numerals.decimal, thousands=numerals.thousands)
        if columns.text("columns") == ALL:
            mapping = mapping.complete(recipe, first.names)
        found = [file for given in logs for file in files_of(given, files.format)]
        builder = KeyedBuilder(
            recipe, mapping, keys, now=rows.now, site=0 if rows.site is None else rows.site,
            epoch=rows.epoch, check_units=not rows.any_time, check_ids=True,
            refused="raise" if output.quarantine is None else "count",
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TimeUnitWarning)  # reported below, as a line
            refused = fold(
                builder, found, files.format, options=options, quarantine=output.quarantine
            )
        nothing = _refuse_nothing(builder, output.out, refused, output.quarantine)
        _write(builder, output.out, output.quarantine, refused, output.as_json)
        if nothing:
            raise CommandError(f"no rows in {len(found)} files; {output.out} is an empty sketch")


def _first(logs: list[Path], files: Files, columns: Columns, keys: Sequence[str]) -> First:
    if not logs[0].exists():
        return First(logs[0])
    path = files_of(logs[0], files.format)[0]
    format = (files.format or format_of(path)) if path.is_file() else ""
    return First.of(path, format, columns, keys, files.text_options())


def _recipe_of(
    server: Server, configuration: Configuration, parameters: Parameters, columns: Columns
) -> Recipe:
    """Return the sketch configuration of a server's stream."""
    assert server.from_server is not None
    url, stream = server.from_server
    if parameters or any(each is not None for each in configuration[:-1]):
        raise CommandError("--from-server gives all parameters; give no others")
    check_no_types(columns, "--from-server")
    with api_client(url, server.api_key_file, server.timeout_s, server.ca_file) as client:
        return recipe_from_server(client, stream, read_id_key(configuration.id_key_file))


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
            f"no row was accepted, and {refused:,} were rejected (see {quarantine}); {out} is "
            "unchanged"
        )
    if out.exists() or builder.keys:
        raise CommandError(f"there are no rows; {out} is unchanged")
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
    if declared := getattr(builder.recipe.params, "columns", ()):
        listed = ", ".join(f"{name} {kind}" for name, kind in declared)
        notes.append(f"columns {listed}")
    if len(written) > _SHOWN:
        notes.append(f"and {len(written) - _SHOWN:,} more")
    if builder.kinds:
        held = ", ".join(f"{name} as {kind}" for name, kind in builder.kinds.items())
        notes.append(f"read {held}")
    if quarantine is not None:
        rows_refused = "1 row" if refused == 1 else f"{refused:,} rows"
        notes.append(f"{rows_refused} rejected: see {quarantine}")
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
