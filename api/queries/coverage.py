"""Coverage of a stream's sources: set algebra over their sketches, computed a little at a time.

Each source's sketch is read by itself, never their join. A request's cost is estimated from the
sources' row counts before any matching, and from the receptions before a pair is read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from api.errors import Fault, InvalidRequestError
from api.queries.answers import EstimateModel, etag
from api.queries.limits import refusal
from api.queries.sources import check_count, check_work
from decaysketch import Snapshot
from decaysketch.errors import ParameterError
from decaysketch.query.estimate import CAVEATS
from decaysketch.sources import CoverageView, SourceSet
from decaysketch.sources.report import parts
from decaysketch.sources.view import MATCH_ROW_S

__all__ = [
    "CoverageAsked",
    "CoverageEvaluation",
    "CoverageResponse",
    "check_cost",
]

_SOURCE_S = 2e-3  # of an exclusive count and the other figures of one source
_SOURCE_ROW_S = 10e-9  # of a row of all sources, for each source


class CoverageAsked(NamedTuple):
    """A coverage request. See the route's parameters."""

    decay: str | None
    now: int | str | None
    guard: int | str
    settle: int | str | None
    without_silence: bool
    limit: int
    share: float
    expression: str | None
    of: str
    confidence: float


class SourceCoverage(BaseModel):
    """A source, and the messages that it heard."""

    source: str
    rows: int = Field(description="Rows of its sketch.")
    newest: int | None = Field(description="Its newest message.")
    count: EstimateModel = Field(description="Decayed count of the messages that it heard.")


class ExclusiveModel(BaseModel):
    """Messages that one source alone heard. The stream loses them without it."""

    source: str
    estimate: EstimateModel


class OverlapModel(BaseModel):
    """Messages that two sources both heard."""

    source: str
    other: str
    estimate: EstimateModel


class HeardByModel(BaseModel):
    """Messages heard by exactly `j` sources."""

    j: int
    estimate: EstimateModel


class CoverStep(BaseModel):
    """A source, in order of additional coverage."""

    source: str
    gain: float = Field(
        description="Share of all messages that this source adds to the previous ones."
    )
    covered: EstimateModel = Field(
        description="Share of messages that the sources up to this one hear. They are chosen on "
        "one half of the rows and evaluated on the other."
    )


class HistoryModel(BaseModel):
    """Messages heard by exactly these sources."""

    sources: list[str]
    estimate: EstimateModel


class SilenceModel(BaseModel):
    """A period in which a source missed every message that others heard."""

    source: str
    after: int = Field(description="The last message that it heard.")
    before: int = Field(description="The first message that it heard again.")


class DisagreementModel(BaseModel):
    """Time differences between duplicates of a message."""

    messages: int = Field(description="Messages that two or more sources store.")
    largest: int = Field(description="The largest difference among them.")
    uncut: int = Field(
        description="Number of messages whose differences no watermark cut off. At most 3 / "
        "uncut of all messages differ by more than `uncut_largest`."
    )
    uncut_largest: int
    lags: dict[str, float | None] = Field(
        description="For each source, the median time from its duplicates to the latest "
        "duplicate. 0 for the clock that is furthest ahead."
    )
    guards: dict[str, int | None] = Field(description="For each source. Null: no bound.")


class UnheardModel(BaseModel):
    """One model's estimate of the messages that no source heard."""

    name: Literal["independent", "chao", "log-linear"]
    value: float | None
    lower: float | None
    upper: float | None


class UnheardRange(BaseModel):
    """Messages that no source heard, as a range over models. Show it with its note."""

    at_least: float | None = Field(description="The lower bound of Chao's model.")
    models: list[UnheardModel] = Field(description="Null if the range has the caveat `rare`.")
    span: tuple[float | None, float | None] | None = Field(
        description="The smallest lower and the largest upper bound. Null: no bound."
    )
    heard: float
    confidence: float
    caveats: list[str] = Field(description="`assumes-independence` always.")
    note: str = Field(description="A note to show next to it.")


class SinceModel(BaseModel):
    """The messages between which a share changed."""

    after: int
    before: int
    was: float
    became: float
    evidence: float = Field(
        description="Twice the logarithm of the likelihood ratio. It is above 20."
    )


class MissingModel(BaseModel):
    """A message in the set, as an example."""

    id: str = Field(description="Its id, a number that may need 64 bits.")
    time: int
    heard_by: list[str]


class SetModel(BaseModel):
    """One set of messages."""

    set: str
    of: str
    count: EstimateModel
    share: EstimateModel = Field(description="Among the messages of `of`.")
    since: SinceModel | None = Field(
        description="Time at which the share changed. Null: it did not."
    )
    missing: list[MissingModel] = Field(description="Its latest messages.")


class CoverageResponse(BaseModel):
    """Messages that a stream's sources heard."""

    stream: str
    now: int = Field(description="Query time of the results.")
    settle: int = Field(description="Time from the last reading to the query time.")
    asked: SetModel | None = Field(default=None, description="Result for `set`, if given.")
    union: EstimateModel = Field(description="Messages that at least one source heard.")
    sources: list[SourceCoverage] = Field(description="Sorted by name.")
    exclusive: list[ExclusiveModel]
    overlaps: list[OverlapModel] | None = Field(
        description="Every pair, heaviest first. With more than 115 sources, the `limit` "
        "heaviest pairs. Null for weights above 1 and for several hash functions."
    )
    heard_by: list[HeardByModel]
    cover: list[CoverStep] = Field(description="Up to the requested share.")
    histories: list[HistoryModel] = Field(description="The largest, `limit` at most.")
    silences: list[SilenceModel]
    unsettled: list[str] = Field(
        description="Sources that posted nothing since `now`: messages may still come."
    )
    disagreement: DisagreementModel
    unheard: UnheardRange | None = Field(
        description="Null for a single source, because there is no bound."
    )
    caveats: dict[str, str] = Field(description="An explanation of each caveat in the response.")


class CoverageEvaluation:
    """Computes a response in short time slices.

    Args:
        stream: its name.
        snapshots: each source's sketch.
        asked: the request.
        from_level: of the stream.

    Raises:
        InvalidRequestError: there is no source, or there are too many. Or it takes longer than
            ``MAX_WORK_S``. Or guard, settle or decay cannot be read.
    """

    def __init__(
        self,
        stream: str,
        snapshots: Mapping[str, Snapshot],
        asked: CoverageAsked,
        from_level: int = 0,
    ) -> None:
        self._stream, self._asked = stream, asked
        check_cost(sum(map(len, snapshots.values())), len(snapshots))
        try:
            self._sources = SourceSet(
                snapshots, guard=asked.guard, settle=asked.settle, from_level=from_level
            )
            decay = asked.decay
            if decay is None and not self._sources.has_fixed_decay:
                decay = "none"
            self._view = self._sources.at(decay, asked.now, without_silence=asked.without_silence)
        except ParameterError as error:
            raise _refused(error) from None
        self.tag = etag(
            "coverage", stream, str(from_level), str(self._view.now), json.dumps(asked),
            *(f"{name} {snapshot.digest}" for name, snapshot in sorted(snapshots.items())),
        )  # fmt: skip
        self._steps = self._compute()
        self._found: dict[str, Any] = {}

    def work(self, turn_s: float) -> bytes | None:
        """Continue for about so long. Return the response as JSON, or None if there is more to do.

        Raises:
            InvalidRequestError: the set cannot be read, or its pairs take longer than
                ``MAX_WORK_S``.
            UnanswerableQueryError: a source has discarded rows that have weight under the decay.
        """
        end = time.monotonic() + turn_s
        try:
            for name, value in self._steps:
                self._found[name] = value
                if time.monotonic() > end:
                    return None
        except ParameterError as error:
            raise _refused(error) from None
        response = CoverageResponse(stream=self._stream, **self._found)
        return response.model_dump_json().encode()

    def _compute(self) -> Iterator[tuple[str, Any]]:
        view, asked = self._view, self._asked
        squares = view.pairs_cost_s()
        check_work(squares, self._sources.rows, len(view.names))
        caveats: dict[str, str] = {}
        if asked.expression is not None:
            found = _one_set(view, asked.expression, asked)
            for each in (found["count"], found["share"]):
                caveats |= {name: CAVEATS[name] for name in each.get("caveats", ())}
            yield "asked", found
        for name, value in parts(
            view, limit=asked.limit, share=asked.share, confidence=asked.confidence
        ):
            yield name, caveats | value if name == "caveats" else value


def _one_set(view: CoverageView, text: str, asked: CoverageAsked) -> dict[str, Any]:
    confidence = asked.confidence
    since = view.since(text, asked.of)
    return {
        "set": text,
        "of": asked.of,
        "count": view.count(text, confidence=confidence).to_dict(),
        "share": view.share(text, asked.of, confidence=confidence).to_dict(),
        "since": None if since is None else since._asdict(),
        "missing": [
            each._asdict() | {"id": str(each.id)} for each in view.missing(text, asked.limit)
        ],
    }


def check_cost(rows: int, count: int) -> None:
    """Reject a request that would take too long, before a source is read.

    Args:
        rows: row count over all sources.
        count: source count.

    Raises:
        InvalidRequestError: it would, or there is no source, or there are too many.
    """
    check_count(count)
    check_work(rows * MATCH_ROW_S + count * (_SOURCE_S + rows * _SOURCE_ROW_S), rows, count)


def _refused(error: ParameterError) -> InvalidRequestError:
    """Return a rejection that names the parameter. The parameter begins the sentence."""
    text = str(error)
    words = text.removeprefix("the ").split(maxsplit=1)
    known = ("guard", "settle", "decay", "now", "set", "of", "share", "confidence")
    return refusal([Fault(field=words[0] if words and words[0] in known else "set", reason=text)])
