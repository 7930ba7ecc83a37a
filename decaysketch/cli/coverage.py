"""``decaysketch coverage``: the messages that several sources heard, from one sketch file each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from decaysketch import families
from decaysketch.cli.output import (
    AsJson,
    CommandError,
    number,
    reporting_errors,
    show,
)
from decaysketch.cli.recipes import IdKeyFile, parse_decay, read_id_key
from decaysketch.cli.sketches import Asked, answers_to
from decaysketch.core.plausible_times import told
from decaysketch.decay import Decay
from decaysketch.query.estimate import CAVEATS
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.query_syntax import query_of
from decaysketch.sources import CoverageView, SourceSet
from decaysketch.sources.report import UNHEARD_NOTE, report

__all__ = ["coverage"]


def coverage(
    sketches: Annotated[
        list[str],
        typer.Argument(
            help="Sketch files, one for each source: FILE, with the source's name, or NAME=FILE. "
            "A folder contains one .sketch file for each source.",
        ),
    ],
    decay: Annotated[
        str | None,
        typer.Option(
            help="As in query: none, 'window(1d)', ... Default: none. Omit it for sketches with a "
            "fixed decay."
        ),
    ] = None,
    now: Annotated[
        str, typer.Option(help="Time of the query: an integer, a date, or latest.")
    ] = "latest",
    expression: Annotated[
        str | None,
        typer.Option(
            "--set",
            help="Count one set instead of everything: 'a & ~b', 'any', 'exactly(2)'. Quote a "
            'name that is not an identifier: \'"gw-1" - "gw-2"\'.',
        ),
    ] = None,
    of: Annotated[str, typer.Option(help="With --set: the share among this set.")] = "any",
    queries: Annotated[
        list[str] | None,
        typer.Option(
            "--query",
            help="Answer this query instead, for example 'mean(v) set a - b by source where v > 3' "
            "or 'share by source, other'. With --set: of the messages in that set. May be given "
            "several times.",
        ),
    ] = None,
    missing: Annotated[
        int, typer.Option(min=0, help="With --set: list this many ids, latest first.")
    ] = 0,
    guard: Annotated[
        str,
        typer.Option(
            help="Bound on the difference in time between duplicates, such as 2s; auto: twice the "
            "largest seen; unbounded."
        ),
    ] = "auto",
    settle: Annotated[
        str, typer.Option(help="Look back by this time, so that late posts are included: 10m.")
    ] = "0",
    from_level: Annotated[
        int,
        typer.Option(
            help="The sketches contain only messages of this level or above, because a relay "
            "forwards only these."
        ),
    ] = 0,
    without_silence: Annotated[
        bool, typer.Option("--without-silence", help="Exclude periods in which a source was down.")
    ] = False,
    values_from: Annotated[
        str | None,
        typer.Option(
            help="With --query: read the values that this source reported. Default: those of the "
            "latest duplicate."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    id_key_file: IdKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the messages that each source heard: counts, exclusive messages, overlaps, the fewest
    sources that cover a share, silences, and a range for messages that no source heard.

    With --set, show one set: its count, its share, the time at which that share changed, and ids.
    With --query, answer any other query, for a set or by source.
    """
    with reporting_errors():
        id_key = read_id_key(id_key_file)
        files = _files(sketches)
        found = {name: _opened(path, id_key) for name, path in files.items()}
        sources = SourceSet(
            found, guard=_length(guard), settle=_length(settle), from_level=from_level
        )
        unit = sources.params.time_unit
        at: Any = None if now == "latest" else int(now) if now.lstrip("-").isdigit() else now
        chosen: Decay | None = None
        if decay is not None or not sources.has_fixed_decay:
            chosen = parse_decay("none" if decay is None else decay, unit)
        view = sources.at(chosen, at, without_silence=without_silence, values_from=values_from)
        if queries:
            found = _answers(view, queries, expression, confidence)
            show(as_json, found, _answer_table(found))
        elif expression is None:
            everything = report(view, confidence=confidence)
            show(as_json, everything, *_tables(everything, unit))
        else:
            asked = _one_set(view, expression, of, missing, confidence)
            show(as_json, asked, *_set_tables(asked, unit))


def _length(text: str) -> Any:
    return int(text) if text.isdigit() else text


def _files(given: list[str]) -> dict[str, Path]:
    """Return files by their source name."""
    files: dict[str, Path] = {}
    for text in given:
        name, equals, rest = text.partition("=")
        path = Path(rest) if equals and not Path(text).exists() else Path(text)
        if path.is_dir():
            listed = [(each.stem, each) for each in sorted(path.glob("*.sketch"))]
            if not listed:
                raise CommandError(f"no .sketch files in {path}")
        else:
            listed = [(name if path != Path(text) else path.stem, path)]
        for source, file in listed:
            if source in files:
                raise CommandError(
                    f"source {source!r} has two files: {files[source]} and {file}; name the "
                    "sources, NAME=FILE"
                )
            files[source] = file
    return files


def _opened(path: Path, id_key: bytes | None) -> Any:
    try:
        return families.decode(path.read_bytes(), id_key=id_key)
    except ValueError as fault:
        raise CommandError(f"{path}: {fault}") from None


def _one_set(
    view: CoverageView, expression: str, of: str, missing: int, confidence: float
) -> dict[str, Any]:
    since = view.since(expression, of)
    count = view.count(expression, confidence=confidence)
    share = view.share(expression, of, confidence=confidence)
    return {
        "now": view.now,
        "set": expression,
        "of": of,
        "count": count.to_dict(),
        "share": share.to_dict(),
        "since": None if since is None else since._asdict(),
        "unsettled": list(view.unsettled),
        "missing": [each._asdict() for each in view.missing(expression, missing)],
        "caveats": {name: CAVEATS[name] for name in sorted({*count.caveats, *share.caveats})},
    }


def _answers(
    view: CoverageView, queries: list[str], expression: str | None, confidence: float
) -> dict[str, Any]:
    """Return the results for queries as texts, each of the messages in a set if one is given."""
    answers: list[dict[str, Any]] = []
    for text in queries:
        question, arguments, modifiers = query_of(text)
        if expression is not None:
            modifiers = Modifiers(set=expression).with_more(modifiers)

        def ask(asked: Any, modifiers: Modifiers, **given: Any) -> Any:
            return view.modified(modifiers).ask(asked, **given)

        for label, extra, estimate in answers_to(
            ask, Asked(text, question, arguments, modifiers), confidence
        ):
            content = {} if estimate is None else estimate.to_dict()
            answers.append({"query": text, "label": label, **extra, **content})
    caveats = sorted({name for each in answers for name in each.get("caveats", ())})
    return {
        "now": view.now,
        "answers": answers,
        "unsettled": list(view.unsettled),
        "caveats": {name: CAVEATS[name] for name in caveats},
    }


def _answer_table(found: dict[str, Any]) -> Table:
    caption = "\n".join(f"{name}: {text}" for name, text in found["caveats"].items())
    table = Table("result", *_ENDS, caption=caption or None)
    for each in found["answers"][:_SHOWN]:
        table.add_row(each["label"], *(_cells(each) if "lower" in each else ["", "", "", ""]))
    return table


def _cells(estimate: dict[str, Any]) -> list[str]:
    ends = (estimate["value"], estimate["lower"], estimate["upper"])
    return [*("" if each is None else number(each) for each in ends), number(estimate["rows"])]


_ENDS = ("value", "lower", "upper", "rows")


def _set_tables(asked: dict[str, Any], unit: str) -> list[Table]:
    table = Table("set", *_ENDS, caption=_caption(asked, unit))
    table.add_row(asked["set"], *_cells(asked["count"]))
    table.add_row(f"share of {asked['of']}", *_cells(asked["share"]))
    tables = [table]
    if asked["missing"]:
        listed = Table("id", "time", "heard by")
        for each in asked["missing"]:
            heard = ", ".join(each["heard_by"])
            listed.add_row(str(each["id"]), told(unit, each["time"]), heard)
        tables.append(listed)
    return tables


def _caption(asked: dict[str, Any], unit: str) -> str:
    lines = [f"as of {told(unit, asked['now'])}"]
    if asked.get("since") is not None:
        since = asked["since"]
        lines.append(
            f"the share changed from {since['was']:.4g} to {since['became']:.4g} between "
            f"{told(unit, since['after'])} and {told(unit, since['before'])}"
        )
    if asked["unsettled"]:
        late = asked["unsettled"]
        more = f" and {len(late) - _NAMED:,} more" if len(late) > _NAMED else ""
        lines.append(
            f"not posted since: {', '.join(late[:_NAMED])}{more}; messages may still come "
            "(--settle looks back)"
        )
    return "\n".join([*lines, *(f"{name}: {text}" for name, text in asked["caveats"].items())])


def _tables(found: dict[str, Any], unit: str) -> list[Table]:
    return [
        _sources(found, unit),
        _overlaps(found["overlaps"] or []),
        _cover(found),
        _listed("heard by exactly", found["histories"], lambda e: ", ".join(e["sources"])),
        *_reasons(found, unit),
    ]


def _sources(found: dict[str, Any], unit: str) -> Table:
    table = Table(
        "source", "heard", *_ENDS[1:3], "alone", *_ENDS[1:3], caption=_caption(found, unit)
    )
    for source, alone in zip(found["sources"], found["exclusive"], strict=True):
        heard, only = _cells(source["count"]), _cells(alone["estimate"])
        table.add_row(source["source"], *heard[:3], *only[:3])
    table.add_row("any", *_cells(found["union"])[:3], "", "", "")
    return table


_SHOWN = 20
_NAMED = 8


def _overlaps(rows: list[dict[str, Any]]) -> Table:
    """Return the pairs that may share a message."""
    shared = [each for each in rows if each["estimate"]["upper"] != 0]
    table = _listed("both heard", shared, lambda each: f"{each['source']} & {each['other']}")
    if len(shared) < len(rows):
        without = f"{len(rows) - len(shared):,} pairs share no message"
        table.caption = f"{table.caption}\n{without}" if table.caption else without
    return table


def _listed(title: str, rows: list[dict[str, Any]], name: Any) -> Table:
    table = Table(title, *_ENDS)
    for each in rows[:_SHOWN]:
        table.add_row(name(each), *_cells(each["estimate"]))
    return _cut(table, rows)


def _cut(table: Table, rows: list[Any]) -> Table:
    if len(rows) > _SHOWN:
        table.caption = f"{len(rows) - _SHOWN:,} more rows with --json"
    return table


def _cover(found: dict[str, Any]) -> Table:
    table = Table("fewest sources", "adds", "covered", *_ENDS[1:3])
    for place, each in enumerate(found["cover"][:_SHOWN], 1):
        covered = _cells(each["covered"])[:3]
        table.add_row(f"{place}. {each['source']}", f"{each['gain']:.4g}", *covered)
    return _cut(table, found["cover"])


def _reasons(found: dict[str, Any], unit: str) -> list[Table]:
    tables = []
    if found["silences"]:
        silent = Table("silent source", "after", "before")
        for each in found["silences"][:_SHOWN]:
            silent.add_row(each["source"], told(unit, each["after"]), told(unit, each["before"]))
        tables.append(_cut(silent, found["silences"]))
    if (unheard := found["unheard"]) is not None:
        table = Table("heard by none", "value", "lower", "upper", caption=UNHEARD_NOTE)
        for each in unheard["models"]:
            ends = (each["value"], each["lower"], each["upper"])
            table.add_row(each["name"], *("" if end is None else number(end) for end in ends))
        table.add_row("at least", "", number(unheard["at_least"]), "")
        tables.append(table)
    return tables
