"""The same questions to sketches of other seeds: was it luck that the intervals held the truth?

All answers of one sketch come from one hash function. Fresh seeds make independent sketches of the
same log, here in this process and from all rows at once; a sketch does not depend on how the log
was cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import polars as pl

import decaysketch as ds
from decaysketch.query import aggregates as query
from demo.questions import QUANTILES, Cell
from demo.scores import Answer, Reading, Score, Truth, score_by_aggregate

__all__ = ["Replicas", "Truths", "ask_sketch", "build", "replicate", "summarise"]

Truths: TypeAlias = Mapping[Cell, Mapping[str, tuple[Truth, float]]]
"""For each cell and aggregate the truth, and what counting every copy would have said."""


def build(log: pl.DataFrame, params: ds.SketchParams) -> ds.DecaySketch:
    """A sketch of all deliveries, in the order in which they stand in the log."""
    sketch = ds.DecaySketch(params)
    values = log["value"].to_numpy()
    sketch.update(
        np.ma.masked_array(np.nan_to_num(values), mask=log["value"].is_null().to_numpy()),
        log["weight"].to_numpy(),
        log["time"].to_numpy(),
        ds.observation_ids(log["source"].to_numpy(), log["msg"].to_numpy(), params=params),
    )
    return sketch


def ask_sketch(sketch: ds.DecaySketch, cell: Cell, aggregates: Iterable[str]) -> dict[str, Reading]:
    """Answers by name of the aggregate, all from one sample."""
    sample = sketch.sample(ds.decay.from_dict(cell.decay.to_json()), now=cell.now_us)
    wanted = set(aggregates)
    estimates: dict[str, ds.Estimate] = {}
    for name, ask in (
        ("count", query.count),
        ("sum", query.sum),
        ("total", query.total),
        ("mean", query.mean),
    ):
        if name in wanted:
            estimates[name] = ask(sample)
    for q in QUANTILES:
        if f"q{q:g}" in wanted:
            estimates[f"q{q:g}"] = query.quantile(sample, q)
    return {n: Reading(e.value, e.lower, e.upper, e.exact) for n, e in estimates.items()}


@dataclass(frozen=True)
class Replicas:
    """Results of many seeds.

    Attributes:
        scores: by aggregate, over all answers of all seeds.
        shares: for each seed, the share of its intervals that hold the truth.
        broken: answers that called themselves exact and were not.
    """

    scores: list[Score]
    shares: list[float]
    broken: int

    @property
    def share_error(self) -> float:
        """Standard error of the mean share: seeds are independent, answers of one seed are not."""
        if len(self.shares) < 2:
            return math.nan
        return float(np.std(self.shares, ddof=1) / math.sqrt(len(self.shares)))


def replicate(
    log: pl.DataFrame, params: ds.SketchParams, truths: Truths, seeds: Sequence[int]
) -> Iterator[list[Answer]]:
    """The answers of one seed after the other."""
    for seed in seeds:
        sketch = build(log, replace(params, seed=seed))
        answers = []
        for cell, expected in truths.items():
            readings = ask_sketch(sketch, cell, expected)
            for name, (truth, naive) in expected.items():
                answers.append(Answer(cell, name, readings[name], truth, naive))
        yield answers


def summarise(by_seed: Sequence[Sequence[Answer]]) -> Replicas:
    """Pool the answers of several seeds."""
    pooled = [answer for answers in by_seed for answer in answers]
    return Replicas(
        score_by_aggregate(pooled),
        [sum(a.holds for a in answers) / len(answers) for answers in by_seed],
        sum(a.claim_broken for a in pooled),
    )
