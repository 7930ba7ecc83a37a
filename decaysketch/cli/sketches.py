"""``decaysketch merge``, ``query`` and ``inspect``, for files that contain a serialised sketch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.progress import track
from rich.table import Column, Table

from decaysketch import decay as decays
from decaysketch import families
from decaysketch.cli.output import (
    AsJson,
    CommandError,
    human_bytes,
    number,
    refuse_uri,
    report,
    reporting_errors,
    show,
    warn,
    write_whole,
)
from decaysketch.cli.recipes import IdKeyFile, parse_decay, read_id_key
from decaysketch.cli.time_options import (
    Chosen,
    How,
    Moments,
    Start,
    Stop,
    VersusAgo,
    VersusDecay,
    VersusNow,
)
from decaysketch.core.plausible_times import doubt, doubts_of_query, told
from decaysketch.errors import CorruptSketchError
from decaysketch.families import Sketch
from decaysketch.query.catalog import QUESTIONS
from decaysketch.query.estimate import CAVEATS, Estimate
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.query_syntax import argument_of, proposal, query_of
from decaysketch.query.shapes import Question
from decaysketch.query.tables import GroupTable
from decaysketch.tables import merge_blobs

__all__ = ["inspect", "merge", "query"]

# A query with brackets or clauses, see decaysketch.query.query_syntax.
_SPELLED = re.compile(r"\(|\b(by|where|versus|weight|limit|order)\b")
_SHOWN = 20  # rows of a table, where as many are found as there are values


def _example(question: Question[Any]) -> str:
    """Return an example of the query."""
    leading = question.leading
    if leading is None or not leading.travels:
        return question.name
    if leading.kind == "sketch":
        return f"{question.name}:FILE"
    if leading.kind == "predicate":
        return f"{question.name}:'{leading.example}'"
    given = leading.example if leading.many != "no" else [leading.example]
    return f"{question.name}:{','.join(map(str, given))}"


def _open(path: Path, id_key: bytes | None) -> Sketch:
    if path.is_dir():
        raise CommandError(
            f"{path} is a folder; name a sketch in it, or merge them first: decaysketch merge "
            f"{path} --out all.sketch"
        )
    try:
        return families.decode(path.read_bytes(), id_key=id_key)
    except ValueError as fault:
        raise CommandError(f"{path}: {fault}") from None


def merge(
    sketches: Annotated[list[Path], typer.Argument(help="Sketch files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="File to write the merged sketch to.")],
    id_key_file: IdKeyFile = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing output.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Merge sketches of one stream into one. Duplicates and order do not matter."""
    with reporting_errors():
        refuse_uri(out)
        if out.exists() and not overwrite:
            raise CommandError(f"{out} exists; --overwrite replaces it")
        id_key = read_id_key(id_key_file)
        paths = [
            path
            for given in sketches
            for path in (sorted(given.glob("*.sketch")) if given.is_dir() else [given])
        ]
        if not paths:
            raise CommandError(f"no sketch files in {', '.join(map(str, sketches))}")
        hidden = not report.is_terminal
        shown = track(paths, "merging", console=report, transient=True, disable=hidden)
        try:
            blob = merge_blobs((path.read_bytes() for path in shown), id_key=id_key)
        except CorruptSketchError:
            for path in paths:
                _open(path, id_key)  # says which
            raise
        write_whole(out, blob)
        facts = {"file": str(out), "merged": len(paths), **_facts(out, id_key)}
        _warn_of(facts)
        show(as_json, facts, _two_columns(facts))


def inspect(
    sketches: Annotated[list[Path], typer.Argument(help="Sketch files.")],
    id_key_file: IdKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the properties of sketches: family, parameters, rows, watermarks, bytes, digest."""
    with reporting_errors():
        id_key = read_id_key(id_key_file)
        all_facts = [{"file": str(path), **_facts(path, id_key)} for path in sketches]
        for facts in all_facts:
            _warn_of(facts)
        show(as_json, all_facts, *map(_two_columns, all_facts))


def _warn_of(facts: dict[str, Any]) -> None:
    unit = facts["params"]["time_unit"]
    if (found := doubt(unit, facts["oldest"], facts["newest"])) is not None:
        warn(f"{facts['file']} contains times that are probably not in {unit}: {found}")


def _facts(path: Path, id_key: bytes | None) -> dict[str, Any]:
    sketch = _open(path, id_key)
    size, stats = path.stat().st_size, sketch.stats()
    complete = stats.complete_since
    fixed, sites = getattr(sketch, "decay", None), getattr(sketch, "sources", None)
    return {
        "family": families.family_of(path.read_bytes()),
        "params": sketch.params.to_dict(),
        **({} if fixed is None else {"decay": fixed.to_dict()}),
        "fingerprint": sketch.params.fingerprint.hex(),
        **({} if sites is None else {"sites": list(sites)}),
        "rows": len(sketch),
        **_columns(sketch),
        "levels": len(complete),
        "watermarks": list(complete),
        "oldest": stats.oldest,
        "newest": stats.newest,
        "clock": getattr(sketch, "clock", None),
        "bytes": size,
        "bytes_per_row": round(size / max(len(sketch), 1), 2),
        "digest": sketch.digest(),
    }


def _columns(sketch: Sketch) -> dict[str, Any]:
    """Return the columns in the first hash function's rows, if the stream has columns."""
    states = getattr(sketch, "states", None)
    records = None if states is None else getattr(states()[0], "records", None)
    return {} if records is None else {"columns": records.facts()}


def _told_columns(columns: dict[str, dict[str, Any]]) -> str:
    """Return a line for each column, and a hint for texts that differ in most rows."""
    lines = []
    for name, facts in columns.items():
        line = f"{name} {facts['type']}: {facts['rows']:,} rows"
        if (texts := facts.get("texts")) is not None:
            size = human_bytes(facts["text_bytes"])
            line += f", {texts:,} {'text' if texts == 1 else 'texts'} of {size}"
            if 2 * texts > facts["rows"] and texts > _SHOWN:
                line += " (nearly one for each row: most of the bytes may be this column's)"
        lines.append(line)
    return "\n".join(lines)


def _two_columns(facts: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    for name, value in facts.items():
        if name == "watermarks":
            kept = [mark for mark in value if mark is not None]
            text = f"{len(kept)} of {len(value)} levels: {kept}" if kept else "none"
        elif name == "bytes":
            text = human_bytes(value)
        elif name == "columns":
            text = _told_columns(value)
        elif name in ("params", "decay"):
            text = ", ".join(f"{key}={each}" for key, each in value.items() if key != "columns")
        elif name == "sites":
            listed = ", ".join(map(str, value[:_SHOWN]))
            text = f"{len(value):,}: {listed}{', ...' if len(value) > _SHOWN else ''}"
        elif name in ("oldest", "newest", "clock"):
            text = told(facts["params"]["time_unit"], value)
        else:
            text = number(value) if isinstance(value, int) else str(value)
        table.add_row(name, text)
    return table


# -------------------------------------------------------------------------------------------- query


_AGGREGATES = (
    ", ".join(map(_example, QUESTIONS.values()))
    + ", or with a filter and groups, as in 'mean(v) by hour(time) where v > 3'."
)


def query(
    sketch: Annotated[Path, typer.Argument(help="A sketch file.")],
    aggregates: Annotated[
        list[str],
        typer.Argument(help=_AGGREGATES),
    ],
    decay: Annotated[
        list[str] | None,
        typer.Option(
            help="none, window(1h30m), exponential(half_life=1h), polynomial(1, scale=60), '1/(1 "
            "+ x/60)', or JSON. May be given several times. Default: none."
        ),
    ] = None,
    decay_expression: Annotated[
        list[str] | None, typer.Option(help="A decay as a text, such as '1/(1 + x/60)'.")
    ] = None,
    now: Annotated[
        str,
        typer.Option(
            help="Query time: an integer, a date such as 2026-01-31T12:00Z, or latest: the newest "
            "stored time."
        ),
    ] = "latest",
    start: Start = None,
    stop: Stop = None,
    versus_now: VersusNow = None,
    versus_ago: VersusAgo = None,
    versus_decay: VersusDecay = None,
    how: How = None,
    confidence: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    id_key_file: IdKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Query a sketch for aggregates under one or more decays. Each result has its interval.

    --from and --to query a range of times. --versus-ago and --versus-now compare with another
    moment: count, rate, sum, total, mean and rank.
    """
    with reporting_errors():
        id_key = read_id_key(id_key_file)
        opened = _open(sketch, id_key)
        chosen: list[Chosen] = [
            (text, parse_decay(text, opened.params.time_unit)) for text in decay or ()
        ]
        chosen += [(text, decays.expression(text)) for text in decay_expression or ()]
        versus, left_out = (versus_now, versus_ago, versus_decay, how), 0
        compared = any(each is not None for each in versus)
        if start is not None or stop is not None:
            if chosen or compared or now != "latest":
                raise CommandError(
                    "--from and --to select the observations: give no decay, no time and no "
                    "comparison"
                )
            moments = Moments.of_range(opened, start, stop)
        else:
            moments = Moments.of(opened, now, chosen)
            if compared:
                moments = moments.against(opened, *versus)
        unit, stats = opened.params.time_unit, opened.stats()
        doubts = doubts_of_query(unit, stats.oldest, stats.newest, moments.all)
        for reason in doubts:
            warn(reason)
        answers: list[dict[str, Any]] = []
        caveats: dict[str, None] = {}
        table = Table(
            "aggregate",
            Column("decay", overflow="fold"),
            "value",
            "lower",
            "upper",
            "exact",
            "rows",
        )
        questions = [_read(opened, aggregate, id_key) for aggregate in aggregates]
        compared |= any(asked.modifiers.versus is not None for asked in questions)
        if any(asked.question.of_keys for asked in questions):
            table.add_column("surely at most")
        if compared:
            table.add_column("changed")
        several = len(moments.decays) > 1
        for name, ask in moments.asks(opened):
            for asked in questions:
                found = answers_to(ask, asked, confidence)
                shown = found[: _shown(asked)]
                left_out += len(found) - len(shown)
                for label, extra, estimate in found:
                    content = {} if estimate is None else estimate.to_dict()
                    answers.append({"aggregate": label, "decay": name, **extra, **content})
                for label, extra, estimate in shown:
                    if estimate is None:
                        known = (
                            number(each) if each is not None else "" for each in extra.values()
                        )
                        table.add_row(label, name, " at ".join(known), "", "", "yes", "")
                        continue
                    interval = (estimate.value, estimate.lower, estimate.upper)
                    exact = "yes" if estimate.exact else ""
                    cells = [*map(number, interval), exact, number(estimate.rows)]
                    if any(each.question.of_keys for each in questions):
                        sure = estimate.sure_upper
                        cells.append("" if sure is None else number(sure))
                    if compared:
                        cells.append({None: "", True: "yes", False: "no"}[estimate.changed])
                    table.add_row(label, name, *cells)
                    which = f"{label} under {name}" if several else label
                    caveats |= dict.fromkeys(
                        f"{which}: {caveat}: {CAVEATS[caveat]}" for caveat in estimate.caveats
                    )
        table.caption = f"{moments.told(unit)}, {100 * confidence:.4g} % intervals"
        if left_out:
            table.caption += f"; {left_out:,} more rows with --json"
        table.caption += "".join(f"\n{caveat}" for caveat in caveats)
        if caveats:
            table.caption += "\nmore about such results: docs/estimators.md"
        everything = moments.to_dict(unit) | {"answers": answers, "warnings": doubts}
        show(as_json, everything, table)


class Asked(NamedTuple):
    """One of the queries.

    Attributes:
        aggregate: as it was given.
        question, arguments, modifiers: its parsed parts.
    """

    aggregate: str
    question: Question[Any]
    arguments: dict[str, Any]
    modifiers: Modifiers


Answers = list[tuple[str, dict[str, Any], Estimate | None]]


def _read(sketch: Sketch, aggregate: str, id_key: bytes | None) -> Asked:
    """Parse a text as a query to a sketch."""
    name, _, text = aggregate.partition(":")
    if name not in QUESTIONS and _SPELLED.search(aggregate):
        spelled = query_of(aggregate)
        _check_has(sketch, spelled.question.name)
        return Asked(aggregate, *spelled)
    _check_has(sketch, name)
    try:
        arguments = _argument(QUESTIONS[name], text, id_key)
    except ValueError as fault:
        raise CommandError(f"aggregate {aggregate!r}: {fault}") from None
    return Asked(aggregate, QUESTIONS[name], arguments, Modifiers())


def _check_has(sketch: Sketch, name: str) -> None:
    if name not in sketch.questions:
        listed = ", ".join(each for each in QUESTIONS if each in sketch.questions)
        raise CommandError(
            f"aggregate is {name!r}; expected one of {listed} for a {type(sketch).__name__}"
            f"{_meant(name)}"
        )


def _meant(name: str) -> str:
    """Return alternatives for a name that is no query of a sketch."""
    if (query := proposal(name)) is not None:
        return f"; did you mean {query!r}?"
    others = [each.name for each in families.FAMILIES.values() if name in each.questions]
    return f"; {name} needs a sketch built with --family {' or '.join(others)}" * bool(others)


def answers_to(ask: Callable[..., Any], asked: Asked, confidence: float) -> Answers:
    """Return the results for one aggregate: label, further fields, and the estimate if there is
    one.
    """
    aggregate, question, arguments, modifiers = asked
    found = ask(question, confidence=confidence, modifiers=modifiers, **arguments)
    if not isinstance(found, GroupTable):
        return _answers(aggregate, question, question.parts(found, arguments))
    answers: Answers = []
    for row in found:
        keys = ", ".join(f"{name} = {_said(value)}" for name, value in row.by.items())
        extra = {"by": row.by, "small": row.small}
        if row.certain is not None:
            extra["certain"] = row.certain
        answers += [
            (label if label != aggregate else keys, extra | of, estimate)
            for label, of, estimate in _answers(
                aggregate, question, question.parts(row.answer, arguments), f"{keys}: "
            )
        ]
    return answers


def _said(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return value if isinstance(value, str) else number(value)


def _answers(
    aggregate: str, question: Question[Any], parts: dict[str, Any], before: str = ""
) -> Answers:
    """Return the estimates in a result. ``before`` is the prefix of their labels."""
    rows = question.shape.rows
    answers: Answers = []
    for row in [] if rows is None else parts[rows.name]:
        assert rows is not None
        named = {
            each.name: str(row[each.name]) if each.kind == "key" else number(row[each.name])
            for each in rows.keys
            if row[each.name] is not None
        }
        keys = {each.name: row[each.name] for each in rows.keys}
        if not rows.estimates:
            answers.append((aggregate, keys, None))
        keys = {f"{key}_of" if key in _ESTIMATED else key: each for key, each in keys.items()}
        answers += [
            (before + each.label.format(**named), keys, row[each.name]) for each in rows.estimates
        ]
    return answers + [
        (before + each.label if each.label else aggregate, {}, parts[each.name])
        for each in question.shape.beside
        if each.kind == "estimate"
    ]


_ESTIMATED = {field.name for field in fields(Estimate)}


def _argument(question: Question[Any], text: str, id_key: bytes | None) -> dict[str, Any]:
    """Parse the text after the colon."""
    leading = question.leading
    if leading is not None and leading.kind == "sketch":
        return {leading.name: _open(Path(text), id_key)}
    return argument_of(question, text)


def _shown(asked: Asked) -> int | None:
    """Return how many results a table shows. If there is a row for each value, only some."""
    question = asked.question
    if asked.modifiers.by:
        return _SHOWN
    if question.shape.rows is None or all(each.name != "limit" for each in question.arguments):
        return None
    return _SHOWN * len(question.shape.rows.estimates)
