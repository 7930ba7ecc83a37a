"""Everything that a coverage report returns, as JSON-ready parts.

HTTP, the command line and the dashboard show these. A part costs from a millisecond to a second, so
a server with several callers computes the parts one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decaysketch.errors import ParameterError
from decaysketch.query.estimate import CAVEATS, Estimate
from decaysketch.sources.expression import quoted
from decaysketch.sources.view import CoverageView, Heard

__all__ = ["UNHEARD_NOTE", "parts", "report"]

UNHEARD_NOTE = (
    "No measurement bounds the messages that no source heard. Each model assumes how sources hear, "
    "and the range over the models misses the truth in about 4 of 10 cases. It is no packet loss."
)
"""What stands next to every estimate of unheard messages."""

_REPORTED = 115
"""With more sources, the matrix of pairs is cut to the ``limit`` heaviest."""


def report(
    view: CoverageView, *, limit: int = 20, share: float = 0.99, confidence: float = 0.95
) -> dict[str, Any]:
    """All parts together; arguments and errors as :func:`parts`."""
    return dict(parts(view, limit=limit, share=share, confidence=confidence))


def parts(
    view: CoverageView, *, limit: int = 20, share: float = 0.99, confidence: float = 0.95
) -> Iterator[tuple[str, Any]]:
    """Return the names and values of the parts in a report.

    Args:
        view: the coverage view to read.
        limit: the maximum number of histories, and of pairs if there are more than 115 sources.
        share: the steps in ``cover`` end at this share.
        confidence: of every interval.

    Raises:
        UnanswerableQueryError: a source has discarded observations that the decay gives weight to.
    """
    seen = _Seen()
    yield "now", view.now
    yield "settle", view.sources.settle
    yield "union", seen(view.count(_everyone(view), confidence=confidence))
    yield "sources", [_source(view, each, seen) for each in view.heard(confidence=confidence)]
    exclusive = view.exclusive(confidence=confidence)
    yield "exclusive", [each._asdict() | {"estimate": seen(each.estimate)} for each in exclusive]
    most = None if len(view.names) <= _REPORTED else limit
    yield "overlaps", _overlaps(view, most, seen, confidence)
    yield (
        "heard_by",
        [
            {"j": each.j, "estimate": seen(each.estimate)}
            for each in view.heard_by(confidence=confidence)
        ],
    )
    yield (
        "cover",
        [
            {"source": each.source, "gain": each.gain, "covered": seen(each.covered)}
            for each in view.cover(share, confidence=confidence)
        ],
    )
    yield (
        "histories",
        [
            {"sources": list(each.sources), "estimate": seen(each.estimate)}
            for each in view.histories(limit=limit, confidence=confidence)
        ],
    )
    yield "silences", [each._asdict() for each in view.silences()]
    yield "unsettled", list(view.unsettled)
    yield "disagreement", _disagreement(view)
    unheard = None
    if len(view.names) > 1:
        unheard = view.unheard(confidence=confidence).to_dict() | {"note": UNHEARD_NOTE}
        seen.names |= dict.fromkeys(unheard["caveats"])
    yield "unheard", unheard
    yield "caveats", {name: CAVEATS[name] for name in sorted(seen.names)}


class _Seen:
    """Gathers the caveats of the estimates that it turns into JSON."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def __call__(self, estimate: Estimate) -> dict[str, Any]:
        self.names |= dict.fromkeys(estimate.caveats)
        return estimate.to_dict()


def _everyone(view: CoverageView) -> str:
    return "any" if len(view.names) > 1 else quoted(view.names[0])


def _source(view: CoverageView, heard: Heard, seen: _Seen) -> dict[str, Any]:
    snapshot = view.sources.snapshots[view.sources.index(heard.source)]
    return {
        "source": heard.source, "rows": len(snapshot), "newest": snapshot.newest,
        "count": seen(heard.estimate),
    }  # fmt: skip


def _overlaps(
    view: CoverageView, most: int | None, seen: _Seen, confidence: float
) -> list[dict[str, Any]] | None:
    """Return None if they are not read: weights above 1, or several hash functions."""
    try:
        found = view.overlaps(limit=most, confidence=confidence)
    except ParameterError:
        return None
    return [each._asdict() | {"estimate": seen(each.estimate)} for each in found]


def _disagreement(view: CoverageView) -> dict[str, Any]:
    found = view.disagreement()
    lags = {name: None if lag != lag else lag for name, lag in found.lags.items()}
    return found._asdict() | {"lags": lags}
