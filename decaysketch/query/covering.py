"""Queries to several sources: the share that one message set has in another.

A coverage view answers them: see :mod:`decaysketch.sources.restricted`.
"""

from __future__ import annotations

from typing import Any

from decaysketch.query.estimate import Estimate
from decaysketch.query.shapes import SCALAR, Argument, Question

__all__ = ["SOURCE_QUESTIONS"]


def _share(view: Any, *, confidence: float, combine: Any, among: str) -> Estimate:
    found: Estimate = view.share_among(among, confidence=confidence, combine=combine)
    return found


SOURCE_QUESTIONS: list[Question[Any]] = [
    Question(
        "share",
        "Share of one set's messages (`set`) in another set. With `set` `a & b` and `among` `b`, "
        "the delivery ratio of `a` measured by `b`.",
        _share,
        lambda view, _: view.drawn_s,
        SCALAR,
        lambda found, _: {"estimate": found},
        (
            Argument(
                "among",
                "set",
                "A set expression over sources. Default: `any`, every message that a source heard.",
                default="any",
                leading=True,
                example="any",
                longest=500,
            ),
        ),
        frozenset({"sources"}),
        compared=True,
    )
]
"""Every query to several sources, in the order of documents."""
