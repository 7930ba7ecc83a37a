"""What travels about streams and sketches, as pydantic models. Queries are in ``queries``.

Requests are strict: a field that nobody reads, a number in quotes or a fraction where an integer is
meant is refused, never guessed. Domains of parameters are the library's business; here are types,
and how much of each there may be: every list has a greatest length, lists of numbers and texts are
left at their first fault, and of fields that nobody knows a few are named. So the work and the
memory that a body takes follow from what is allowed, not from what somebody sends.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import Header, Path, Query
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    RootModel,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from decaysketch import SketchParams
from decaysketch.asyncwindow import AsyncParams, MedianParams, SumParams

__all__ = [
    "FIELDS",
    "SOURCE",
    "STREAM",
    "TEXT",
    "AfterHeader",
    "DecayStream",
    "DecayText",
    "HashedStream",
    "Health",
    "IntegralStream",
    "IntervalFirst",
    "IntervalModel",
    "IntervalNext",
    "MedianStream",
    "MedianStreamParams",
    "PostedSketch",
    "PostedSketches",
    "SourceKey",
    "SourceState",
    "StreamCreation",
    "StreamList",
    "StreamName",
    "StreamParams",
    "StreamState",
    "StreamSummary",
    "SumStream",
    "SumStreamParams",
    "text_or_fields",
]

_LARGEST_NUMBER = (1 << 63) - 1
_UNKNOWN_NAMED = 3
STREAM = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
SOURCE = r"^[^\x00-\x1f\x7f-\x9f]{1,200}$"

FIELDS, TEXT = "as fields", "as text"  # of a decay; no name of a field has a space
DecayText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2000,
        description="`none`, `window(1h)`, `exponential(half_life=15min)`, `polynomial(1, "
        "scale=10s)`, `piecewise([(1min, 1), (1h, 0.5)])`, `1/(1 + log(1 + x/60))`. Numbers "
        "without a unit are in the stream's `time_unit`; others are converted to it exactly.",
    ),
]


def text_or_fields(decay: object) -> str:
    """The tag of what a decay is spelled as."""
    return TEXT if isinstance(decay, str) else FIELDS


StreamName = Annotated[
    str,
    Path(
        pattern=STREAM,
        description="1 to 100 letters, digits, `.`, `_` or `-`, the first a letter or digit.",
        examples=["ward-7"],
    ),
]
SourceText = Annotated[str, Field(pattern=SOURCE)]
SourceKey = Annotated[
    str,
    Query(
        pattern=SOURCE,
        description="Who sends: 1 to 200 characters without control characters.",
        examples=["gateway-3"],
    ),
]
IntervalFirst = Annotated[
    int | None,
    Query(
        ge=0,
        le=_LARGEST_NUMBER,
        description="With `next`: the sketch says to hold the numbers `first` <= n < `next` of its "
        "source, and none of them is taken twice.",
    ),
]
IntervalNext = Annotated[
    int | None,
    Query(alias="next", ge=0, le=_LARGEST_NUMBER, description="With `first`: one past the last."),
]
AfterHeader = Annotated[
    str | None,
    Header(
        max_length=200,
        description="Token of a post: wait until that post is in what is answered.",
    ),
]


class RequestModel(BaseModel):
    """Base of every request body."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_unknown_fields(cls, fields: Any) -> Any:
        """Each unknown field is a fault to tell of, and a body has room for many."""
        most = len(cls.model_fields) + _UNKNOWN_NAMED
        if isinstance(fields, dict) and len(fields) > most:
            raise PydanticCustomError(
                "too_many_fields",
                "has {count} fields; there are {known}",
                {"count": len(fields), "known": len(cls.model_fields)},
            )
        return fields


class StreamParams(RequestModel):
    """`SketchParams.to_dict()`; what is left out has the library's default."""

    max_weight: int = Field(description="Largest weight of an observation.", examples=[999])
    id_bits: int = Field(default=40, description="Ids are integers below 2^id_bits.")
    capacity: int = Field(default=24_000, description="Observations kept for each level.")
    copies: int = Field(default=1, description="Independent hash functions.")
    seed: int = Field(default=0, description="Fixes the hash function; up to 64 bits.")
    time_unit: str = Field(default="s", max_length=100, description="Unit of times and ages.")
    value_type: Literal["int64", "float64"] = Field(default="float64")
    id_mix: Literal["keyed", "none"] = Field(default="keyed")
    keyed_by: Literal["seed"] = Field(
        default="seed",
        description="By a secret of the sender's: not here, merging needs it. See `secret_ids`.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.to_library()
        return self

    def to_library(self) -> SketchParams:
        """The library's parameters; their domains are checked there."""
        return SketchParams.from_dict(self.model_dump())


class _SamplerParams(RequestModel):
    capacity: int = Field(description="Elements kept for each level.", examples=[2000])
    max_window: int | None = Field(
        default=None, description="Largest width of a window; null for any."
    )
    seed: int = Field(default=0, description="Fixes the coins; up to 64 bits.")
    time_unit: str = Field(default="s", max_length=100, description="Unit of times and ages.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.to_library()
        return self

    def to_library(self) -> SumParams | MedianParams:
        """The library's parameters; their domains are checked there."""
        return AsyncParams.from_dict(self.model_dump())


class SumStreamParams(_SamplerParams):
    """`SumParams.to_dict()`; what is left out has the library's default."""

    kind: Literal["sum"] = "sum"
    max_sum: int = Field(description="Upper bound on the sum of any window.", examples=[1_000_000])
    eager_from_level: int | None = Field(default=None, description="L of the paper's section 2.5.")


class MedianStreamParams(_SamplerParams):
    """`MedianParams.to_dict()`; what is left out has the library's default."""

    kind: Literal["median"] = "median"
    max_count: int = Field(
        description="Upper bound on the number of elements of any window.", examples=[1_000_000]
    )
    value_type: Literal["int64", "float64"] = Field(default="float64")


class _Stream(RequestModel):
    max_clock_skew_s: float | None = Field(
        default=None,
        ge=0,
        description="Seconds that a time may lie ahead of the clock of this service; null: any. "
        "The setting of the service where it is left out.",
    )

    def form(self) -> dict[str, Any]:
        """What the sketches of the stream share, as ``recipe_from_dict`` reads it."""
        return self.model_dump(exclude={"max_clock_skew_s", "secret_ids", "bind_keys"})


class HashedStream(_Stream):
    secret_ids: bool = Field(
        default=False,
        description="Key the ids by a secret that this service draws and keeps: nobody can choose "
        "ids that bias the sketch. Such a stream takes raw observations only.",
    )
    bind_keys: bool = Field(
        default=False,
        description="With `secret_ids`: the source that posts is part of the key of an "
        "observation, so that no other source can post a later copy in place of it. Copies that "
        "come through other sources count again.",
    )

    @model_validator(mode="after")
    def _has_a_secret_to_bind_by(self) -> Self:
        if self.bind_keys and not self.secret_ids:
            raise PydanticCustomError(
                "keys_not_secret",
                "bind_keys is true and secret_ids is not: whoever can compute the ids of another "
                "source can post sketches of them",
            )
        return self


class DecayStream(HashedStream):
    """A stream of `DecaySketch`: the decay is chosen by each query."""

    family: Literal["decay"] = "decay"
    params: StreamParams


class IntegralStream(HashedStream):
    """A stream of `IntegralDecaySketch`: one integral decay, which no query changes."""

    family: Literal["integral"]
    params: StreamParams
    decay: Annotated[
        Annotated[dict[str, Any], Field(max_length=10), Tag(FIELDS)]
        | Annotated[DecayText, Tag(TEXT)],
        Discriminator(text_or_fields),
    ] = Field(
        description="As an integral decay's `to_dict()`: `window` with `width`; `exponential` with "
        "`half_life` or `rate`; `polynomial` with `exponent`, `scale`; `halving` with `period`; "
        '`expression` with `text`, `max_weight`. A number may be a fraction in quotes, `"1/3"`. '
        "Or as a text, `exponential(half_life=15min)`.",
        examples=[{"kind": "exponential", "half_life": 3600}, "exponential(half_life=1h)"],
    )


class SumStream(_Stream):
    """A stream of `SumSampler`: sums of positive integers over any window."""

    family: Literal["sum"]
    params: SumStreamParams


class MedianStream(_Stream):
    """A stream of `MedianSampler`: quantiles over any window."""

    family: Literal["median"]
    params: MedianStreamParams


_EXAMPLES: list[JsonValue] = [
    {
        "params": {
            "max_weight": 999,
            "id_bits": 40,
            "capacity": 24000,
            "seed": 42,
            "time_unit": "us",
            "value_type": "float64",
        }
    },
    {
        "family": "integral",
        "params": {"max_weight": 999, "capacity": 8000, "seed": 42},
        "decay": {"kind": "exponential", "half_life": 3600},
    },
    {"family": "sum", "params": {"max_sum": 10**9, "capacity": 2000, "max_window": 3600}},
    {"family": "median", "params": {"max_count": 10**9, "capacity": 2000, "max_window": 3600}},
]


class StreamCreation(
    RootModel[
        Annotated[
            DecayStream | IntegralStream | SumStream | MedianStream, Field(discriminator="family")
        ]
    ]
):
    """Body of `PUT /v1/streams/{name}`: the family of its sketches (`decay` where none is named),
    and what they share."""

    model_config = ConfigDict(json_schema_extra={"examples": _EXAMPLES})

    @model_validator(mode="before")
    @classmethod
    def _with_family(cls, fields: Any) -> Any:
        """The default family. Only one family has a decay, and that is said here: beyond, the name
        of a family in the path to a fault would be taken for that field."""
        if not isinstance(fields, dict):
            return fields
        fields = {"family": "decay"} | fields
        if "decay" in fields and fields["family"] != "integral":
            raise PydanticCustomError(
                "decay_not_fixed",
                "decay is fixed for a stream of family 'integral' alone; family is {family}",
                {"family": repr(fields["family"])[:100]},
            )
        return fields


class StreamSummary(BaseModel):
    """A stream in a list."""

    name: str
    family: str = Field(description="Kind of its sketches.")
    time_unit: str = Field(description="Unit of its times and ages.")
    created: datetime
    digest: str = Field(description="SHA-256 of the state of the merged sketch.")
    rows: int = Field(description="Observations the merged sketch retains.")
    newest: int | None = Field(description="The latest time that it retains; null: it is empty.")
    sources: int = Field(description="How many sources have posted.")
    posts: int = Field(description="Sketches journaled; what came again soon is not counted.")
    posted_bytes: int = Field(description="Their bytes.")
    posted_rows: int = Field(description="Observations in them, copies included.")
    last_received: datetime | None = Field(description="When the last of them came.")


class StreamList(BaseModel):
    """Streams, in order of name."""

    streams: list[StreamSummary]
    next: str | None = Field(
        default=None,
        description="There are more: ask for those `after` this name. Left out where there are "
        "none.",
    )


class SourceState(BaseModel):
    """The merged sketch of one source."""

    source: str
    digest: str
    rows: int
    posts: int = Field(description="Sketches journaled.")
    posted_bytes: int = Field(description="Their bytes.")
    posted_rows: int = Field(description="Observations in them, copies included.")
    last_received: datetime = Field(description="When the last of them came.")
    replacing_rows: int | None = Field(
        description="Rows held of it that stand in place of an earlier copy which another source "
        "has posted: of the same identity, with a later time, or a larger value at the same time. "
        "Counted every now and then, and said with `replacing=true`; null: not asked for, not "
        "counted yet, or too many rows to count."
    )


class StreamState(BaseModel):
    """A stream: what to build its sketches with, and what it holds."""

    name: str
    incarnation: str = Field(description="Another one if the stream is deleted and made anew.")
    family: str = Field(description="Kind of its sketches.")
    time_unit: str = Field(description="Unit of its times and ages.")
    created: datetime
    params: dict[str, Any] = Field(
        description="`to_dict()` of the library's parameters: a sensor builds "
        "`SketchParams.from_dict` (families `decay` and `integral`) or `AsyncParams.from_dict` "
        "(`sum` and `median`) of it. `seed` may need 64 bits."
    )
    decay: dict[str, Any] | None = Field(
        description="`to_dict()` of the decay, where it is fixed (family `integral`)."
    )
    fingerprint: str = Field(
        description="Of the parameters: agrees exactly when two sketches, of one decay where that "
        "is fixed, may be merged."
    )
    max_clock_skew_s: float | None = Field(
        description="Seconds that a time may lie ahead of this service's clock; null: any."
    )
    max_clock_lead_s: float | None = Field(
        description="Seconds that the clock of a sketch may lie ahead of this service's; null: "
        "any. A small share of the time in which the stream forgets by its clock: beyond, and "
        "within `max_clock_skew_s`, a sketch is to be sent again when its time has come (429)."
    )
    secret_ids: bool = Field(description="It takes raw observations only.")
    bind_keys: bool = Field(description="The source is part of the key of an observation.")
    digest: str = Field(description="SHA-256 of the state of the merged sketch.")
    rows: int = Field(description="Observations the merged sketch retains.")
    newest: int | None = Field(description="The latest time that it retains; null: it is empty.")
    bytes: int = Field(description="Size of the merged sketch on the wire.")
    watermarks: list[int | None] = Field(
        description="For each level, the time up to which observations were discarded; null: none. "
        "Family `integral`: the earliest time of a query that the level answers; null: any."
    )
    clock: int | None = Field(
        description="The latest time that a sketch was told; null where none was, and in family "
        "`decay`, which has no clock."
    )
    posts: int = Field(description="Sketches journaled; what came again soon is not counted.")
    posted_bytes: int = Field(description="Their bytes.")
    posted_rows: int = Field(description="Observations in them, copies included.")
    last_received: datetime | None = Field(description="When the last of them came.")
    source_count: int = Field(description="How many sources have posted.")
    sources: list[SourceState] = Field(
        description="In order of name: the first of them, or those asked for by `sources` and "
        "`after_source`."
    )
    revoked: list[str] = Field(description="Sources that are refused, in order of name.")
    warnings: list[str] = Field(
        default=[], description="What is hardly meant, such as times of another unit; often none."
    )


class IntervalModel(BaseModel):
    """The numbers `first <= n < next` of a source."""

    first: int
    next: int


class PostedSketch(BaseModel):
    """A sketch that is on disk now."""

    rows: int = Field(description="Observations in it.")
    bytes: int = Field(description="Its size, as it came.")
    duplicate: bool = Field(description="The journal holds the same bytes from this source.")
    interval: IntervalModel | None = Field(
        description="The numbers of the source that it was said to hold; null if nothing was said."
    )


class PostedSketches(BaseModel):
    """What was posted is on disk now."""

    stream: str
    source: str
    token: str = Field(
        description="Names this post: a query that gives it as `after`, or a request with it as "
        "header `Decaysketch-After`, is answered from a sketch that holds it, on any replica."
    )
    sketches: list[PostedSketch] = Field(description="In the order of the body.")
    warnings: list[str] = Field(
        default=[], description="What is hardly meant, such as times of another unit; often none."
    )


class Health(BaseModel):
    """The process is there and serves."""

    status: Literal["ok"] = "ok"
    version: str = Field(description="Version of decaysketch.")
