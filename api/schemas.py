"""What travels about streams and sketches, as pydantic models. Queries are in ``queries``.

Requests are strict: a field that nobody reads, a number in quotes or a fraction where an integer is
meant is refused, never guessed. Domains of parameters are the library's business; here are types.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from decaysketch import SketchParams

__all__ = [
    "Health",
    "MergedSketch",
    "PostedSketch",
    "SourceKey",
    "SourceState",
    "StreamCreation",
    "StreamList",
    "StreamName",
    "StreamParams",
    "StreamState",
    "StreamSummary",
]

_SOURCE = r"^[^\x00-\x1f\x7f-\x9f]{1,200}$"

StreamName = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="1 to 100 letters, digits, `.`, `_` or `-`, the first a letter or digit.",
        examples=["ward-7"],
    ),
]
SourceText = Annotated[str, Field(pattern=_SOURCE)]
SourceKey = Annotated[
    str,
    Query(
        pattern=_SOURCE,
        description="Who sends: 1 to 200 characters without control characters.",
        examples=["gateway-3"],
    ),
]


class RequestModel(BaseModel):
    """Base of every request body."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


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
        description="Streams keyed by a secret are not for this release: merging needs the key.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.to_library()
        return self

    def to_library(self) -> SketchParams:
        """The library's parameters; their domains are checked there."""
        return SketchParams.from_dict(self.model_dump())


class StreamCreation(RequestModel):
    """Body of `PUT /v1/streams/{name}`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "params": {
                        "max_weight": 999,
                        "id_bits": 40,
                        "capacity": 24000,
                        "seed": 42,
                        "time_unit": "us",
                        "value_type": "float64",
                    }
                }
            ]
        }
    )

    params: StreamParams


class StreamSummary(BaseModel):
    """A stream in a list."""

    name: str
    created: datetime
    digest: str = Field(description="SHA-256 of the state of the merged sketch.")
    rows: int = Field(description="Observations the merged sketch retains.")
    sources: int = Field(description="How many sources have posted.")
    posts: int = Field(description="Distinct sketches journaled; re-posts are not counted.")


class StreamList(BaseModel):
    """Every stream, in order of name."""

    streams: list[StreamSummary]


class SourceState(BaseModel):
    """The merged sketch of one source."""

    source: str
    digest: str
    rows: int
    posts: int = Field(description="Distinct sketches journaled.")
    posted_bytes: int = Field(description="Their bytes.")
    last_received: datetime = Field(description="When the last of them came.")


class StreamState(BaseModel):
    """A stream: what to build its sketches with, and what it holds."""

    name: str
    created: datetime
    params: dict[str, Any] = Field(
        description="`SketchParams.to_dict()`: a sensor builds `SketchParams.from_dict` of it. "
        "`seed` may need 64 bits."
    )
    fingerprint: str = Field(description="Agrees exactly when two sketches may be merged.")
    digest: str = Field(description="SHA-256 of the state of the merged sketch.")
    rows: int = Field(description="Observations the merged sketch retains.")
    bytes: int = Field(description="Size of the merged sketch on the wire.")
    watermarks: list[int | None] = Field(
        description="For each level, the time up to which observations were discarded; null: none."
    )
    posts: int = Field(description="Distinct sketches journaled.")
    posted_bytes: int = Field(description="Their bytes.")
    sources: list[SourceState] = Field(description="In order of name.")


class MergedSketch(BaseModel):
    """The merged sketch of the (stream, source) that was posted to, after folding the post in."""

    rows: int
    digest: str


class PostedSketch(BaseModel):
    """A sketch that is on disk now."""

    stream: str
    source: str
    rows: int = Field(description="Observations in the sketch that was posted.")
    duplicate: bool = Field(description="The same bytes had been taken from this source before.")
    changed: bool = Field(description="Whether the merged sketch of the source is another now.")
    merged: MergedSketch


class Health(BaseModel):
    """The process is there and serves."""

    status: Literal["ok"] = "ok"
    version: str = Field(description="Version of decaysketch.")
