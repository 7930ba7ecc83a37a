"""The demonstration from end to end. ``make demo`` calls ``run``."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from rich.markup import escape

from decaysketch import DecaySketch, SketchParams
from decaysketch.client.posting import source_name
from decaysketch.spark.tables import SketchTable, StoredSketch
from demo.case import Case
from demo.picture import Track, draw, shrink
from demo.questions import QUANTILES, Cell, Decay, duration_text
from demo.reading import Columns, read_log, reasons
from demo.replicas import build, replicate, summarise
from demo.report import Advance, HeavyHitter, PathBytes, Report, percent, size
from demo.scores import Answer, Reading, Truth, score_by_aggregate, truths
from demo.service import (
    Aggregator,
    build_with_spark,
    hitters,
    publish,
    readings,
    running_aggregator,
)
from demo.simulate import SimulationPlan, simulate

__all__ = ["Options", "run"]

ID_BITS: Final = 50  # kernels are fastest up to here, and 2^50 keys hardly ever collide
PICTURE_TIMES: Final = 120
PHI_STEPS: Final = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.1, 0.2)

Bodies: TypeAlias = dict[tuple[str, Cell], bytes]


@dataclass(frozen=True)
class Options:
    """Options of the demonstration.

    Attributes:
        log: a delivery log; None simulates one by ``plan``.
        out: folder for the log, the sketches, the answers and the picture.
        capacity: observations kept for each level; None: 4,000, or a twelfth of the messages of a
            smaller log, so that there is something left to estimate.
        seed: of the sketch.
        seeds: how many other seeds to repeat the questions with.
        times: how many query times.
        value_label: name and unit of the values, for the picture.
        small_picture: path for a second, smaller picture file.
        columns: columns of a given log and their meanings.
        format: of a given log. None: by its suffix.
    """

    log: Path | None = None
    out: Path = Path("demo-output")
    plan: SimulationPlan = field(default_factory=SimulationPlan)
    capacity: int | None = None
    seed: int = 1
    seeds: int = 20
    times: int = 14
    value_label: str | None = None
    small_picture: Path | None = None
    columns: Columns = field(default_factory=Columns)
    format: str | None = None


_QUESTION = (
    "How many messages were sent lately, and what did they say? They come several times each, by "
    "several gateways, some of them hours late, and some clocks are wrong. To count what arrives "
    "answers another question: below, that stands beside the truth and what the sketch says."
)


def run(options: Options, report: Report) -> int:
    """Do everything; the exit status is 0 only if every promise was kept."""
    options.out.mkdir(parents=True, exist_ok=True)
    if options.small_picture is not None:
        options.small_picture.parent.mkdir(parents=True, exist_ok=True)
    report.heading("The question")
    report.say(_QUESTION)
    log_path = options.log or _simulated_log(options, report)
    with report.step("Looking at the log"):
        given = read_log(log_path, options.columns, format=options.format, out=options.out)
    with report.step("Computing the exact and the naive answers with polars") as advance:
        case = Case.of(given, options.times, advance)
    params = SketchParams(
        max_weight=case.max_weight,
        id_bits=min(ID_BITS, ((1 << 61) // (20 * case.max_weight)).bit_length() - 1),
        capacity=options.capacity or max(500, min(4_000, len(case.exact) // 12)),
        seed=options.seed,
        time_unit="us",
    )
    _introduce(report, case, params)
    _show_refused(report, case, options.out)
    _show_clocks(report, case, options.out)

    report.heading("The main job")
    report.say("Spark builds one sketch per gateway (python -m spark_jobs.build)")
    with report.step("Spark", bar=False):
        built = build_with_spark(case.given.path, options.out, params, weighted=case.weighted)
    if not built:
        report.say(
            f"  taken from an earlier run over the same log with the same settings; remove "
            f"{options.out / 'sketches'} to have them built again"
        )
    sketches = list(SketchTable.open(options.out / "sketches").sketches())

    with running_aggregator(options.out, tell=report.say) as aggregator:
        with report.step("Posting the sketches to a fresh aggregator"):
            publish(options.out / "sketches", aggregator.url)
        with report.step("Asking over HTTP") as advance:
            bodies = _ask_everything(aggregator, case, advance)
        answers = case.beside_truth(
            {
                cell: readings(expected, bodies["aggregates", cell])
                for cell, expected in case.truths.items()
            }
        )
        _show_bytes(report, case, sketches, aggregator)
        _show_answers(report, case, answers, options.out)
        _show_heavy_hitters(report, case, aggregator)
        broken = [a for a in answers if a.claim_broken]
        faults = [f"{len(broken)} answers called exact are not"] if broken else []
        faults += _post_again(report, case, aggregator, sketches, bodies, params)
        with report.step("Drawing") as advance:
            picture = _draw(case, aggregator, params, options, advance)
    if options.seeds > 0:
        faults += _repeat_with_other_seeds(report, case, params, options)

    report.heading("Result")
    for name, path in (
        ("every answer", options.out / "answers.csv"),
        ("every clock", options.out / "clocks.csv"),
        ("all that is printed here", options.out / "report.txt"),
    ):
        report.say(f"{name}: {escape(str(path))}")
    for fault in faults:
        report.say(f"[bold red]broken promise:[/] {fault}")
    if not faults:
        report.say("[green]every promise kept[/]")
    report.say(f"the answer as a picture: {escape(str(picture))}")
    report.write(options.out / "report.txt")
    return 1 if faults else 0


# --------------------------------------------------------------------------------------- the log


def _simulated_log(options: Options, report: Report) -> Path:
    with report.step("Simulating a sensor network") as advance:
        simulation = simulate(options.plan, on_step=lambda done, total: advance(done / total))
        path = options.out / "simulated_network.parquet"
        simulation.log.write_parquet(path)
    report.say(
        f"  {options.plan.sensors} sensors sent {simulation.sent:,} messages in "
        f"{options.plan.days:g} days; {simulation.sent - simulation.delivered:,} were never heard, "
        f"{percent(simulation.late_share, 1, sign=False)} of the deliveries came more than an "
        "hour late"
    )
    return path


def _gateways(log: pl.DataFrame) -> str:
    count = log["path"].n_unique()
    return f"{count} gateway{'s' if count > 1 else ''}"


def _introduce(report: Report, case: Case, params: SketchParams) -> None:
    log, exact = case.log, case.exact
    span_us = case.middle_us[1] - case.middle_us[0]
    stepped_back = log.select((pl.col("event_us").diff() < 0).mean()).item() or 0.0
    report.heading(f"The log: {escape(case.path.name)}")
    outside = _outside(case)
    report.facts(
        [
            ("deliveries", f"{len(log):,} by {_gateways(log)}, "
             f"over {duration_text(span_us)}; {size(case.path.stat().st_size)} of file"),
            *([("far outside", outside)] if outside else []),
            *(("note", escape(remark)) for remark in case.given.remarks),
            ("messages", f"{len(exact):,} of {log['source'].n_unique():,} sources: "
             f"{len(log) / len(exact):.2f} copies of each"),
            ("out of order", f"{percent(stepped_back, 1, sign=False)} "
             "of the deliveries happened before the one that arrived before them"),
            ("sketch", f"capacity {params.capacity:,}, ids of {params.id_bits} bits, weights to "
             f"{params.max_weight}, seed {params.seed}"),
            ("its error", f"standard error of a decayed sum about 1 / sqrt(capacity) = "
             f"{percent(params.capacity**-0.5, 1, sign=False)} where it samples; the paper's "
             f"guarantee is {percent((60 / params.capacity) ** 0.5, 1, sign=False)} with "
             "probability 2/3"),
        ]
    )  # fmt: skip


def _outside(case: Case) -> str:
    """Describe the messages that axes and queries skip because they are far away in time, or ""."""
    before, after = case.outside
    times, (first, last) = case.exact.times_us, case.middle_us
    parts = []
    if before:
        parts.append(f"{before:,} messages up to {duration_text(first - times[0])} before")
    if after:
        parts.append(f"{after:,} up to {duration_text(times[-1] - last)} after")
    return f"{' and '.join(parts)} all others" if parts else ""


def _show_refused(report: Report, case: Case, out: Path) -> None:
    refused = case.given.refused
    if not refused.height:
        return
    rows = refused["row"].n_unique()
    report.heading(f"Quarantine: {rows:,} rows that cannot be counted, and are not")
    report.refusals(reasons(refused), str(out / "quarantine" / "refused.parquet"))


def _show_clocks(report: Report, case: Case, out: Path) -> None:
    listed = pl.DataFrame(
        [asdict(clock) for clock in case.clocks],
        schema={
            "path": pl.String, "rows": pl.Int64, "unstamped": pl.Int64, "median": pl.Float64,
            "worst": pl.Int64, "against": pl.Float64, "suspect": pl.Boolean,
        },
    )  # fmt: skip
    in_us = {name: f"{name}_us" for name in ("median", "worst", "against")}
    listed.rename(in_us).write_csv(out / "clocks.csv")
    report.heading("Clocks by path")
    report.clocks(case.clocks)


# ------------------------------------------------------------------------------------ the answers


def _ask_everything(
    aggregator: Aggregator, case: Case, advance: Advance = lambda share: None
) -> Bodies:
    """Raw bodies: every aggregate of every cell, and at the end heavy hitters by every decay."""
    bodies: Bodies = {}
    for done, (cell, expected) in enumerate(case.truths.items(), start=1):
        bodies["aggregates", cell] = aggregator.ask(cell, expected)
        advance(done / len(case.truths))
    for decay in case.decays:
        cell = Cell(decay, case.last_us)
        bodies["heavy hitters", cell] = aggregator.heavy_hitters(cell, 0.01)
    return bodies


def _show_bytes(
    report: Report, case: Case, sketches: Sequence[StoredSketch], aggregator: Aggregator
) -> None:
    log_bytes = case.path.stat().st_size
    deliveries = dict(case.log.group_by("path").len().iter_rows())
    report.heading("Bytes posted against bytes of the log")
    report.bytes_by_path(
        [
            PathBytes(
                source_name(sketch.key),
                deliveries[sketch.key[0]],
                log_bytes * deliveries[sketch.key[0]] / len(case.log),
                len(sketch.blob),
            )
            for sketch in sketches
        ]
    )
    merged = aggregator.merged_sketch()
    report.say(
        f"the merged sketch: {size(len(merged))}, {len(DecaySketch.from_bytes(merged)):,} of "
        f"{len(case.exact):,} messages; every message once, exactly, as Parquet: "
        f"{size(case.exact_bytes)}"
    )
    if len(merged) > case.exact_bytes / 2:
        report.say(
            "[yellow]this log is too small to gain by a sketch of this capacity: keep every "
            "message, or give a smaller --capacity[/]"
        )


def _show_answers(report: Report, case: Case, answers: Sequence[Answer], out: Path) -> None:
    _write_answers(answers, out / "answers.csv")
    nows = sorted({answer.cell.now_us for answer in answers})
    decays = case.decays
    chosen = {
        Cell(decay, now)
        for decay in (decays[1], decays[4], decays[5])
        for now in (nows[len(nows) // 4], nows[-3:][0], nows[-1])
    }
    names = {"count", "sum", "mean", "q0.5"}
    report.heading("Answers over HTTP, a selection")
    report.answers([a for a in answers if a.cell in chosen and a.aggregate in names])
    report.heading(
        f"All {len(answers)} answers: {len(nows)} times x {len(decays)} decays x aggregates"
    )
    report.scores(score_by_aggregate(answers))
    report.say("[dim]widths and errors are relative to the exact answer[/]")


def _write_answers(answers: Sequence[Answer], path: Path) -> None:
    pl.DataFrame(
        [
            {
                "decay": a.cell.decay.label,
                "now_us": a.cell.now_us,
                "aggregate": a.aggregate,
                "estimate": a.reading.value,
                "lower": a.reading.lower,
                "upper": a.reading.upper,
                "is_exact": a.reading.exact,
                "exact": a.truth.value,
                "naive": a.naive,
                "holds": a.holds,
            }
            for a in answers
        ]
    ).write_csv(path)


def _show_heavy_hitters(report: Report, case: Case, aggregator: Aggregator) -> None:
    cell = Cell(case.decays[4], case.last_us)
    exact, naive = case.exact.at(cell), case.naive.at(cell)
    if not exact.weight_of_values > 0:
        return
    shares = exact.weights / exact.weight_of_values
    phi = max((p for p in PHI_STEPS if p < 0.8 * shares.max()), default=PHI_STEPS[0])
    reported = {value for value, _ in hitters(aggregator.heavy_hitters(cell, phi))}
    true = {float(value) for value in exact.values[shares > phi]}
    estimates = dict(hitters(aggregator.heavy_hitters(cell, phi / 2)))  # of the near misses, too
    unseen = Reading(math.nan, math.nan, math.nan, exact=False)
    rows = [
        HeavyHitter(
            value,
            value in reported,
            estimates.get(value, unseen),
            exact.share_of(value),
            naive.share_of(value),
        )
        for value in sorted(true | reported, key=lambda value: -exact.share_of(value))
    ]
    report.heading(
        f"Heavy hitters: values with more than {percent(phi, 1, sign=False)} of the weight, "
        f"{cell.decay.label}, at the end"
    )
    report.heavy_hitters(rows)


# ------------------------------------------------------------------------------------- the proofs


def _post_again(
    report: Report,
    case: Case,
    aggregator: Aggregator,
    sketches: Sequence[StoredSketch],
    bodies: Bodies,
    params: SketchParams,
) -> list[str]:
    """Post everything twice more in a shuffled order, rebuild from a shuffled log, list changes."""
    before = aggregator.merged_sketch()
    again = list(sketches) * 2
    random.Random(params.seed).shuffle(again)
    faults = []
    with report.step("Posting everything again, shuffled, twice") as advance:
        new = 0
        for done, sketch in enumerate(again, start=1):
            new += aggregator.post(source_name(sketch.key), sketch.blob)
            advance(done / len(again))
    with report.step("Asking everything again") as advance:
        after = aggregator.merged_sketch()
        answers = _ask_everything(aggregator, case, advance)
        different = sum(body != bodies[question] for question, body in answers.items())
    with report.step("Building once more, here, from the log shuffled and doubled"):
        doubled = pl.concat([case.log, case.log])
        shuffled = doubled.sample(fraction=1.0, shuffle=True, seed=params.seed)
        rebuilt = build(shuffled, params).to_bytes()

    report.heading("Sent again, nothing changes")
    report.facts(
        [
            ("re-posted", f"{len(again)} sketches, {new} of them new to the journal"),
            ("merged sketch", _same(after == before) + f" ({size(len(before))})"),
            ("answers", f"{_same(not different)} ({len(bodies)} bodies, "
             f"{size(sum(map(len, bodies.values())))})"),
            ("another build", f"{_same(rebuilt == before)} from {len(shuffled):,} shuffled "
             "deliveries in one process, without gateways, Spark or HTTP"),
        ]
    )  # fmt: skip
    if new:
        faults.append(f"{new} re-posted sketches were journaled again")
    if after != before:
        faults.append("re-posting changed the bytes of the merged sketch")
    if different:
        faults.append(f"re-posting changed {different} answers")
    if rebuilt != before:
        faults.append("a sketch of the shuffled, doubled log has other bytes than the merged one")
    return faults


def _same(same: bool) -> str:
    return "[green]byte for byte the same[/]" if same else "[bold red]CHANGED[/]"


def _repeat_with_other_seeds(
    report: Report, case: Case, params: SketchParams, options: Options
) -> list[str]:
    seeds = range(params.seed + 1, params.seed + 1 + options.seeds)
    by_seed = []
    with report.step(f"The same questions to sketches of {len(seeds)} other seeds") as advance:
        for answers in replicate(case.log, params, case.truths, seeds):
            by_seed.append(answers)
            advance(len(by_seed) / len(seeds))
    replicas = summarise(by_seed)
    report.heading(f"Independent sketches of the same log: {len(seeds)} seeds")
    report.scores(replicas.scores)
    report.say(
        f"share of intervals that hold: {percent(replicas.scores[-1].share, 2, sign=False)}, "
        f"standard error over seeds {percent(replicas.share_error, 2, sign=False)}; "
        f"per seed {percent(min(replicas.shares), 1, sign=False)} to "
        f"{percent(max(replicas.shares), 1, sign=False)}"
    )
    if replicas.broken:
        return [f"{replicas.broken} answers of other seeds called exact are not"]
    return []


# ------------------------------------------------------------------------------------ the picture


def _draw(
    case: Case,
    aggregator: Aggregator,
    params: SketchParams,
    options: Options,
    advance: Advance,
) -> Path:
    first, last = case.middle_us
    if first == last:  # then at least how it fades
        last += 4 * case.decays[4].length_us
    spread = np.linspace(first + 0.02 * (last - first), last, PICTURE_TIMES)
    nows = sorted({int(now) for now in spread})
    window, faded = case.decays[1], case.decays[4]
    quantile_names = [f"q{q:g}" for q in QUANTILES]
    rows: dict[tuple[Decay, str], list[tuple[float, ...]]] = {}
    for done, now in enumerate(nows, start=1):
        for decay, names in ((window, ["count"]), (faded, ["count", *quantile_names])):
            cell = Cell(decay, now)
            read = readings(names, aggregator.ask(cell, names))
            exact = truths(case.exact.at(cell), weighted=False, keep_zero=True)
            naive = truths(case.naive.at(cell), weighted=False, keep_zero=True)
            nowhere = Truth(math.nan, math.nan)
            for name in names:
                answer = read[name]
                rows.setdefault((decay, name), []).append(
                    (
                        answer.value,
                        answer.lower,
                        answer.upper,
                        exact.get(name, nowhere).value,
                        naive.get(name, nowhere).value,
                    )
                )
        advance(done / len(nows))

    def track(decay: Decay, name: str, label: str) -> Track:
        return Track(label, *(list(column) for column in zip(*rows[decay, name], strict=True)))

    merged = aggregator.merged_sketch()
    log_size = size(case.path.stat().st_size, 3)
    path = options.out / f"{case.path.stem}.png"
    outside = _outside(case)
    draw(
        path,
        title=f"{size(len(merged), 3)} of sketch stand in for {log_size} of log"
        if 2 * len(merged) < case.path.stat().st_size
        else f"A sketch of {size(len(merged), 3)} beside a log of {log_size}",
        subtitle=f"{case.path.stem}: {len(case.log):,} deliveries of {len(case.exact):,} messages "
        f"by {_gateways(case.log)}, {len(case.log) / len(case.exact):.1f} copies of each; "
        f"capacity {params.capacity:,}",
        value_label=options.value_label or ("temperature (°C)" if options.log is None else "value"),
        times_us=nows,
        window=track(window, "count", window.label),
        faded=track(faded, "count", faded.label),
        quantiles=[track(faded, f"q{q:g}", f"{100 * q:g} %") for q in QUANTILES],
        clocks=case.clocks,
        cut=f"Cut off: {outside}." if outside else "",
    )
    if options.small_picture is not None:
        shrink(path, options.small_picture)
    return path
