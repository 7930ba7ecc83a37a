"""Streams and sketches in requests and responses, as pydantic models. Queries are in ``queries``.

Requests are strict: an unknown field, a number in quotes, or a fraction for an integer is rejected
and never guessed. The library checks parameter domains. Models here check types and sizes: every
list has a maximum length, lists of numbers and texts end at their first fault, and an error names a
few unknown fields only. So the limits bound the work and the memory for a body, and its content
does not.

The model for creating a stream belongs to its family: each family's description
(:mod:`decaysketch.contract.family`) gives a model for its parameters and one for the body.
"""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from fastapi import Header, Path, Query
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    RootModel,
    Tag,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from decaysketch.core.column_types import MAX_COLUMNS, MAX_STRATUM_COLUMNS, ColumnType
from decaysketch.core.params import DEFAULT_STRATA, OBJECTIVES, RECORD, Option, SketchParams
from decaysketch.core.sizing import DEFAULT_CAPACITY, MAX_CAPACITY, capacity_for, least_id_bits
from decaysketch.families import DEFAULT, FAMILIES, Family
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.views import MAX_PART, MAX_PARTS

__all__ = [
    "FIELDS",
    "MAX_KEY_PARTS",
    "SOURCE",
    "STREAM",
    "TEXT",
    "AfterHeader",
    "DecayText",
    "GrantModel",
    "Granted",
    "HashedStream",
    "Health",
    "IntervalFirst",
    "IntervalModel",
    "IntervalNext",
    "PostedSketch",
    "PostedSketches",
    "SourceKey",
    "SourceState",
    "Stream",
    "StreamCreation",
    "StreamList",
    "StreamName",
    "StreamState",
    "StreamSummary",
    "text_or_fields",
]

_LARGEST_NUMBER = (1 << 63) - 1
_UNKNOWN_NAMED = 3
_LONGEST_TEXT = 100
#: Parameters that are not options of a stream. Some have their own explanation.
_SAID_BESIDES = {
    "keyed_by": "By the sender's secret. Not possible here, because a merge needs it. See "
    "`secret_ids`."
}
STREAM = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
MAX_KEY_PARTS = 4
"""Of a key that is written as an array."""
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
    """The tag for a decay's notation."""
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
        description="Name of the source: 1 to 200 characters without control characters.",
        examples=["gateway-3"],
    ),
]
IntervalFirst = Annotated[
    int | None,
    Query(
        ge=0,
        le=_LARGEST_NUMBER,
        description="With `next`: the sketch contains the source's numbers `first` <= n < "
        "`next`. The server accepts each number once.",
    ),
]
IntervalNext = Annotated[
    int | None,
    Query(
        alias="next",
        ge=0,
        le=_LARGEST_NUMBER,
        description="With `first`: one past the last number.",
    ),
]
AfterHeader = Annotated[
    str | None,
    Header(
        max_length=200,
        description="Token of a post. The server waits until the result includes the post.",
    ),
]


class RequestModel(BaseModel):
    """Base of all request bodies."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_unknown_fields(cls, fields: Any) -> Any:
        """Limit the unknown fields: each is an error to report, and a body can contain many."""
        most = len(cls.model_fields) + _UNKNOWN_NAMED
        if isinstance(fields, dict) and len(fields) > most:
            raise PydanticCustomError(
                "too_many_fields",
                "has {count} fields; there are {known}",
                {"count": len(fields), "known": len(cls.model_fields)},
            )
        return fields


_ACCURACY = "Replaces the capacity: the maximum relative error of a sum in 19 of 20 results."


_EXPECTED = (
    "Replaces `id_bits`: expected number of distinct observations in the stream's life. Ids then "
    "have the fewest bits for which collisions add less than a tenth to the standard error."
)
_COLUMNS = "Columns of an observation by name, instead of one value (family `decay`)."


class _Params(RequestModel):
    """Base of every family's parameters."""

    params_type: ClassVar[type[Any]]

    @model_validator(mode="before")
    @classmethod
    def _without_implied(cls, fields: Any) -> Any:
        """Drop a value type that columns imply, as in the parameters that a stream returns."""
        if isinstance(fields, dict) and fields.get("columns"):
            fields = {n: v for n, v in fields.items() if (n, v) != ("value_type", RECORD)}
        return fields

    @model_validator(mode="after")
    def _check(self) -> Self:
        accuracy = getattr(self, "accuracy", None)
        if accuracy is not None:  # the capacity replaces it
            if "capacity" in self.model_fields_set:
                raise PydanticCustomError(
                    "accuracy_and_capacity", "accuracy and capacity are given; expected one of them"
                )
            self.__dict__["capacity"] = capacity_for(accuracy)
        self._check_expected()
        self.to_library()
        return self

    def _check_expected(self) -> None:
        """Replace ``expected`` by the id bits for it."""
        expected = getattr(self, "expected", None)
        if expected is None:
            return
        if "id_bits" in self.model_fields_set:
            raise PydanticCustomError(
                "expected_and_id_bits", "expected and id_bits are given; expected one of them"
            )
        sized: Any = self  # of the library's ``SketchParams``
        bits = least_id_bits(expected, sized.capacity, sized.max_weight)
        self.__dict__["id_bits"] = bits

    def to_library(self) -> Any:
        """Return the library's parameters. Their class checks the domains."""
        return self.params_type.from_dict(self.model_dump())


def _params_model(family: Family) -> type[_Params]:
    """Return a family's parameter model: its options, and the constant fields in their JSON
    form.
    """
    fields: dict[str, Any] = {option.name: _field_of(option) for option in family.options}
    for name, said in family.example.params.to_dict().items():
        if name not in fields:
            doc = _SAID_BESIDES.get(name)
            fields[name] = (Literal[said], Field(default=said, description=doc))
    if family.params is SketchParams:  # a model that families share
        fields["objectives"] = _field_of(OBJECTIVES)
        fields["columns"] = (
            dict[str, ColumnType],
            Field(default={}, max_length=MAX_COLUMNS, description=_COLUMNS),
        )
        fields["revision"] = (
            str | None,
            Field(
                default=None,
                max_length=_LONGEST_TEXT,
                description="An int64 column that orders duplicates, for corrections and "
                "withdrawals.",
            ),
        )
        fields["strata"] = (
            list[str],
            Field(
                default=[],
                max_length=MAX_STRATUM_COLUMNS,
                description="One or two text columns. Each combination of their values has its "
                "own sample.",
            ),
        )
        fields["max_strata"] = (
            int,
            Field(default=DEFAULT_STRATA, description="Strata that the stream accepts."),
        )
        fields["accuracy"] = (
            float | None,
            Field(default=None, exclude=True, description=_ACCURACY),
        )
        fields["expected"] = (
            int | None,
            Field(default=None, exclude=True, ge=1, description=_EXPECTED),
        )
    library = family.params.__name__
    model = create_model(
        f"{library.removeprefix('Sketch').removesuffix('Params')}StreamParams",
        __base__=_Params,
        __module__=__name__,
        __doc__=f"`{library}.to_dict()`. Missing members have the library's defaults.",
        **fields,
    )
    model.params_type = family.params
    return model


def _field_of(option: Option) -> tuple[Any, Any]:
    kind: Any = Literal[option.choices] if option.choices else option.type
    said: dict[str, Any] = {"description": option.doc}
    if option.type is str and not option.choices:
        said["max_length"] = _LONGEST_TEXT
    if option.example is not None:
        said["examples"] = [option.example]
    return kind | None if option.optional else kind, Field(default=option.default, **said)


#: The longest texts about a stream.
_LONGEST_UNIT, _LONGEST_DESCRIPTION = 40, 300
_ONE_LINE = r"^[^\x00-\x1f\x7f]*$"
_UNIT = "Unit of the values, such as `°C`, for display."
_DESCRIPTION = "The measured quantity in one line, for display."
_FROM_LEVEL = (
    "Sources post only messages with this level or above, one in 2^level for weight 1. "
    "Queries need a `set`. 0: all messages."
)
_TEXT_CHANGES = " A key with the role `admin` may replace it. An empty text removes it."


class Stream(RequestModel):
    """The fields of every new stream, in any family."""

    family: str
    params: _Params
    max_clock_skew_s: float | None = Field(
        default=None,
        ge=0,
        description="Seconds that a time may lie ahead of the server's clock. Null: any. "
        "Default: the server's setting.",
    )
    unit: str | None = Field(
        default=None,
        max_length=_LONGEST_UNIT,
        pattern=_ONE_LINE,
        description=_UNIT + _TEXT_CHANGES,
        examples=["°C"],
    )
    description: str | None = Field(
        default=None,
        max_length=_LONGEST_DESCRIPTION,
        pattern=_ONE_LINE,
        description=_DESCRIPTION + _TEXT_CHANGES,
        examples=["Room temperature"],
    )

    @property
    def about(self) -> dict[str, str]:
        """The texts that are given."""
        texts = {"unit": self.unit, "description": self.description}
        return {name: text.strip() for name, text in texts.items() if text is not None}

    def form(self) -> dict[str, Any]:
        """Return the stream's sketch configuration, for ``recipe_from_dict``."""
        return self.model_dump(
            exclude={
                "max_clock_skew_s",
                "from_level",
                "unit",
                "description",
                "secret_ids",
                "bind_keys",
                "ingest",
                "views",
            }
        )


_Part = Annotated[int, Field(ge=0, le=MAX_PART)]


class DevicesView(RequestModel):
    """The last reading per device: `GET /v1/streams/{name}/devices`."""

    id: _Part | Annotated[list[_Part], Field(min_length=1, max_length=MAX_PARTS)] = Field(
        description="Index, from 0, of the id part that names the device, or a list of indexes."
    )
    capacity: int = Field(
        default=DEFAULT_CAPACITY,
        ge=1,
        le=MAX_CAPACITY,
        description="Maximum number of devices. If it exceeds their number, all results are exact.",
    )

    @property
    def parts(self) -> list[int]:
        """The parts in the given order."""
        return self.id if isinstance(self.id, list) else [self.id]


class Views(RequestModel):
    """A stream's derived streams."""

    devices: DevicesView


class HashedStream(Stream):
    """A stream with hashed ids."""

    secret_ids: bool = Field(
        default=False,
        description="Hash ids with a secret that the server generates and stores, so that nobody "
        "can choose ids that bias the sketch. Such a stream accepts raw observations "
        "only.",
    )
    bind_keys: bool = Field(
        default=False,
        description="With `secret_ids`: the source is part of an observation's key, so no other "
        "source can replace it with a later duplicate. Duplicates from other sources "
        "count again.",
    )
    ingest: Mappings | None = Field(
        default=None,
        description="Mappings from other systems' messages to readings of this stream, for the "
        "routes that accept them. For an existing stream, they replace its mappings.",
    )

    views: Views | None = Field(
        default=None,
        description="Derived streams that its raw observations feed, from any protocol. They are "
        "created with the stream, or when you add them.",
    )
    from_level: int = Field(
        default=0,
        ge=0,
        le=62,
        description=_FROM_LEVEL + " Family `decay`, for a stream `NAME.paths` that relays feed.",
    )

    @model_validator(mode="after")
    def _has_a_secret_to_bind_by(self) -> Self:
        if self.bind_keys and not self.secret_ids:
            raise PydanticCustomError(
                "keys_not_secret",
                "bind_keys is true and secret_ids is not: any program that can compute another "
                "source's ids can post sketches with them",
            )
        return self


_FixedDecay = Annotated[
    Annotated[dict[str, Any], Field(max_length=10), Tag(FIELDS)] | Annotated[DecayText, Tag(TEXT)],
    Discriminator(text_or_fields),
    Field(
        description="The form of an integral decay's `to_dict()`: `window` with `width`, "
        "`exponential` with `half_life` or `rate`, `polynomial` with `exponent` and "
        "`scale`, `halving` with `period`, `expression` with `text` and "
        '`max_weight`. A number may be a fraction in quotes, `"1/3"`. Or a text such '
        "as `exponential(half_life=15min)`.",
        examples=[{"kind": "exponential", "half_life": 3600}, "exponential(half_life=1h)"],
    ),
]


def _stream_model(family: Family, params: type[_Params]) -> type[Stream]:
    name = family.name
    fields: dict[str, Any] = {
        "family": (Literal[name], name if name == DEFAULT else ...),
        "params": (params, ...),
    }
    if name in _WITH_DECAY:
        fields["decay"] = (_FixedDecay, ...)
    return create_model(
        f"{name.title()}Stream",
        __base__=HashedStream if family.input.named_by == "ids" else Stream,
        __module__=__name__,
        __doc__=f"A stream of `{family.sketch.__name__}`: {family.doc}",
        **fields,
    )


_WITH_DECAY = [name for name, family in FAMILIES.items() if family.input.decay == "fixed"]
#: By their class in the library, which families may share.
_PARAMS = {family.params: _params_model(family) for family in FAMILIES.values()}
_STREAMS = [_stream_model(family, _PARAMS[family.params]) for family in FAMILIES.values()]
_EXAMPLES: list[JsonValue] = [
    {**({} if name == DEFAULT else {"family": name}), **family.documented}
    for name, family in FAMILIES.items()
]


if TYPE_CHECKING:
    _AnyStream = Stream
else:
    _AnyStream = Annotated[reduce(or_, _STREAMS), Field(discriminator="family")]


class StreamCreation(RootModel[_AnyStream]):
    """Body of `PUT /v1/streams/{name}`: the sketch family (default `decay`) and configuration."""

    model_config = ConfigDict(json_schema_extra={"examples": _EXAMPLES})

    @model_validator(mode="before")
    @classmethod
    def _with_family(cls, fields: Any) -> Any:
        """Insert the default family. A decay for a family without one is rejected here, because
        later an error path would contain the family's name like a field.
        """
        if not isinstance(fields, dict):
            return fields
        fields = {"family": DEFAULT} | fields
        if "decay" in fields and fields["family"] not in _WITH_DECAY:
            raise PydanticCustomError(
                "decay_not_fixed",
                "decay is fixed for a stream of family {fixed} alone; family is {family}",
                {
                    "fixed": " or ".join(map(repr, _WITH_DECAY)),
                    "family": repr(fields["family"])[:100],
                },
            )
        return fields


def _is_none(value: object) -> bool:
    return value is None


class StreamSummary(BaseModel):
    """A stream in a list."""

    name: str
    family: str = Field(description="Kind of its sketches.")
    time_unit: str = Field(description="Unit of its times and ages.")
    unit: str | None = Field(default=None, exclude_if=_is_none, description=_UNIT)
    description: str | None = Field(default=None, exclude_if=_is_none, description=_DESCRIPTION)
    derived_from: str | None = Field(
        default=None,
        exclude_if=_is_none,
        description="For a derived stream: the stream that feeds it.",
    )
    created: datetime
    digest: str = Field(description="SHA-256 of the state of the merged sketch.")
    rows: int = Field(description="Observations the merged sketch retains.")
    newest: int | None = Field(description="The latest retained time. Null: the sketch is empty.")
    sources: int = Field(description="Number of sources that have posted.")
    posts: int = Field(
        description="Sketches in the journal. Repeated posts within a short time are not counted."
    )
    posted_bytes: int = Field(description="Their bytes.")
    posted_rows: int = Field(description="Observations in them, including duplicates.")
    last_received: datetime | None = Field(description="Time of the last one.")


class StreamList(BaseModel):
    """Streams, sorted by name."""

    streams: list[StreamSummary]
    next: str | None = Field(
        default=None,
        description="Pass it as `after` for the next page. Absent on the last page.",
    )


class SourceState(BaseModel):
    """One source's merged sketch."""

    source: str
    digest: str
    rows: int
    posts: int = Field(description="Sketches journaled.")
    posted_bytes: int = Field(description="Their bytes.")
    posted_rows: int = Field(description="Observations in them, including duplicates.")
    last_received: datetime = Field(description="Time of the last one.")
    replacing_rows: int | None = Field(
        description="Retained rows of the source that replace an earlier duplicate from another "
        "source: rows with the same identity and a later time, or with the same time "
        "and a larger value. Counted from time to time, and returned with "
        "`replacing=true`. Null: not requested, not counted yet, or too many rows to "
        "count."
    )


class ViewOfModel(BaseModel):
    """The feed for a derived stream, for clients that hash ids elsewhere and feed it themselves."""

    of: str = Field(description="The stream that feeds it.")
    id: list[int] = Field(description="Indexes, from 0, of the id parts that name a device.")
    names: bool = Field(
        default=False,
        description="The derived stream contains each device's name, a label. Otherwise its last "
        "value.",
    )


class StreamState(BaseModel):
    """A stream: its sketch parameters and its content."""

    name: str
    incarnation: str = Field(description="Changes if the stream is deleted and created again.")
    family: str = Field(description="Kind of its sketches.")
    time_unit: str = Field(description="Unit of its times and ages.")
    unit: str | None = Field(default=None, exclude_if=_is_none, description=_UNIT)
    description: str | None = Field(default=None, exclude_if=_is_none, description=_DESCRIPTION)
    created: datetime
    params: dict[str, Any] = Field(
        description="`to_dict()` of the library's parameters. A client reads them with "
        "`SketchParams.from_dict` (families `decay` and `integral`) or "
        "`AsyncParams.from_dict` (`sum` and `median`). `seed` may need 64 bits."
    )
    decay: dict[str, Any] | None = Field(
        description="`to_dict()` of a fixed decay (family `integral`)."
    )
    fingerprint: str = Field(
        description="Fingerprint of the parameters. Two sketches can be merged exactly if their "
        "fingerprints agree."
    )
    max_clock_skew_s: float | None = Field(
        description="Seconds that a time may lie ahead of the server's clock. Null: any."
    )
    max_clock_lead_s: float | None = Field(
        description="Seconds that a sketch's clock may lie ahead of the server's. Null: any. A "
        "small share of the time after which the stream discards rows. Above it and "
        "within `max_clock_skew_s`, the server returns 429, and the client sends the "
        "sketch again once its time has come."
    )
    secret_ids: bool = Field(description="The stream accepts raw observations only.")
    bind_keys: bool = Field(description="The source is part of the key of an observation.")
    from_level: int | None = Field(
        default=None, exclude_if=_is_none, description=_FROM_LEVEL + " Left out: 0."
    )
    ingest: Mappings | None = Field(
        default=None,
        description="Mappings from other systems' messages to readings of this stream, if there "
        "are any.",
    )
    views: list[str] = Field(
        default=[],
        description="Names of the derived streams that its observations feed. Absent "
        "if there are none.",
    )
    view_of: ViewOfModel | None = Field(
        default=None, description="The input of a derived stream. Absent for other streams."
    )
    digest: str = Field(description="SHA-256 of the state of the merged sketch.")
    rows: int = Field(description="Observations the merged sketch retains.")
    newest: int | None = Field(description="The latest retained time. Null: the sketch is empty.")
    bytes: int = Field(description="Size of the merged sketch on the wire.")
    watermarks: list[int | None] = Field(
        description="For each level, the time up to which it has discarded observations. Null: "
        "none. Family `integral`: the earliest query time that the level supports. "
        "Null: any."
    )
    clock: int | None = Field(
        description="The latest time that a sketch received. Null before the first, and in the "
        "family `decay`, which has no clock."
    )
    posts: int = Field(
        description="Sketches in the journal. Repeated posts within a short time are not counted."
    )
    posted_bytes: int = Field(description="Their bytes.")
    posted_rows: int = Field(description="Observations in them, including duplicates.")
    last_received: datetime | None = Field(description="Time of the last one.")
    source_count: int = Field(description="Number of sources that have posted.")
    sources: list[SourceState] = Field(
        description="Sorted by name: the first ones, or the ones that `sources` and "
        "`after_source` select."
    )
    revoked: list[str] = Field(description="Rejected sources, sorted by name.")
    warnings: list[str] = Field(
        default=[],
        description="Probable mistakes, such as times in another unit. Often empty.",
    )


class IntervalModel(BaseModel):
    """A source's numbers `first <= n < next`."""

    first: int
    next: int


class PostedSketch(BaseModel):
    """A sketch that the server has stored on disk."""

    rows: int = Field(description="Number of observations in it.")
    bytes: int = Field(description="Size of the received sketch in bytes.")
    duplicate: bool = Field(description="The journal holds the same bytes from this source.")
    interval: IntervalModel | None = Field(
        description="The source's numbers in the sketch, as the request gave them. Null if it "
        "gave none."
    )


class GrantModel(BaseModel):
    """A source's allowance for one monitor."""

    monitor: str
    inc: int = Field(description="Number of the report that this responds to.")
    seq: int = Field(description="Number of the report that this responds to.")
    epoch: int
    serial: int = Field(description="The highest serial in this epoch is valid.")
    allowance: float
    lease_s: float = Field(
        description="Length of the lease, counted from the sending of the report."
    )
    spec: dict[str, Any] | None = Field(
        default=None,
        exclude_if=lambda spec: spec is None,
        description="Definition of the monitor, if the source does not know the epoch.",
    )


class Granted(BaseModel):
    """The response to a source's report."""

    grants: list[GrantModel] = Field(description="One for each monitor in which it participates.")
    gone: list[str] = Field(description="Deleted monitors for which it still has a grant.")


class PostedSketches(BaseModel):
    """The server has stored every sketch in the post."""

    stream: str
    source: str
    token: str = Field(
        description="Token of this post. A query with it as `after`, or a request with it in the "
        "header `Decaysketch-After`, reads a sketch that contains the post, on any "
        "replica."
    )
    sketches: list[PostedSketch] = Field(description="In the order of the body.")
    warnings: list[str] = Field(
        default=[],
        description="Probable mistakes, such as times in another unit. Often empty.",
    )
    grants: list[GrantModel] | None = Field(
        default=None,
        exclude_if=lambda grants: grants is None,
        description="Monitor grants, if the post was a source's report. Otherwise absent.",
    )
    gone: list[str] | None = Field(
        default=None,
        exclude_if=lambda gone: gone is None,
        description="Deleted monitors that the report names. Absent if there are none.",
    )


class Health(BaseModel):
    """The process serves requests."""

    status: Literal["ok"] = "ok"
    version: str = Field(description="Version of decaysketch.")
