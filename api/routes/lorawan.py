"""Webhooks from LoRaWAN network servers, read by the stream's mappings.

Network servers repeat little, and disable a webhook after many rejections. So a message that is no
uplink, or not for this stream, gets 200. A busy server returns 503, and they repeat the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from api import schemas
from api.errors import Fault, NothingTakenError
from api.http.caller import writes
from api.http.json_body import JsonRoute, json_only
from api.http.problems import problems
from api.ingest.building import Ingestion, read_body
from api.ingest.messages import read_message
from api.routes.common import TheAggregator, TheSettings, TheStream
from api.routes.ingest import form_of, ingest_messages, maps_of, warnings_on
from decaysketch.core.row_check import Verdict
from decaysketch.ingest import chirpstack
from decaysketch.ingest.columns import Batch
from decaysketch.ingest.documents import DocumentMap
from decaysketch.ingest.message_formats import MESSAGE_FORMATS

__all__ = ["router"]

router = APIRouter(route_class=JsonRoute)  # the reader limits the parsed parts

_ROWS = 1000  # of one message, which has few

_SENDERS = {name: each.webhook for name, each in MESSAGE_FORMATS.items() if each.webhook}
if TYPE_CHECKING:  # a type checker cannot read a table
    Format = str
else:
    Format = Literal[tuple(_SENDERS)]


class PostedMessage(BaseModel):
    """A message's outcome."""

    stream: str
    source: str
    token: str | None = Field(
        description="A query with this token as `after` includes these readings. Null if the "
        "server accepted none."
    )
    rows: int = Field(description="Accepted readings.")
    retained: int = Field(
        description="Observations that are new in this source's posts and retained."
    )
    already_retained: int = Field(description="Duplicates: the server has these readings already.")
    below_watermark: int = Field(
        description="Accepted observations that are too old to be retained."
    )
    skipped: dict[str, int] = Field(
        description="Skipped messages, by kind: `event` or `simulated` (not an uplink), `where` "
        "(another application), `no value`."
    )
    refused: list[str] = Field(description="Rejected readings, with reasons.")
    warnings: list[str] = Field(
        description="Suspicious facts: gateways with a wrong clock, readings that replaced others."
    )


@router.post(
    "/v1/streams/{name}/lorawan",
    tags=["observations"],
    summary="Post an event of a LoRaWAN network server",
    dependencies=[Depends(writes), Depends(json_only)],
    response_model=PostedMessage,
    response_description="The accepted readings are stored. Messages that are not uplinks are "
    "skipped.",
    responses=problems(
        s403="The source was revoked.",
        s404="No such stream.",
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="The stream has no mapping for the format, or the message is an uplink without an "
        "accepted reading, and the problem lists each reason.",
        s503="The journal is unreachable, or too many posts wait to be written. Send the request "
        "again after Retry-After.",
        s507="There is no capacity for its rows, or for another source.",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "An event as the network server's integration posts it.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
async def post_lorawan(
    name: schemas.StreamName,
    request: Request,
    aggregator: TheAggregator,
    stream: TheStream,
    settings: TheSettings,
    format: Annotated[
        Format,
        Query(description=f"{', or '.join(_SENDERS.values())}."),
    ],
    event: Annotated[
        str,
        Query(max_length=100, description="ChirpStack adds it. `up` is an uplink."),
    ] = "up",
    source: Annotated[
        str | None,
        Query(
            pattern=schemas.SOURCE,
            description="Name of the source. Default: the name of the format.",
        ),
    ] = None,
) -> PostedMessage:
    """For ChirpStack's HTTP integration and webhooks from The Things Stack, unchanged. Device,
    session and counter identify a frame, so a repeated frame changes nothing, also through other
    gateways.
    """
    source = source or format
    stream.admit(source)
    maps = maps_of(stream, format, DocumentMap, '"value": ...')
    topic = chirpstack.topic_of(event) if format == "chirpstack" else ""
    form = form_of(aggregator, stream, source, settings, _most(maps))
    reader = partial(read_message, format=format, maps=maps, topic=topic)
    ingestion = Ingestion(stream=stream, form=form, views=aggregator.views_of(stream))
    read = partial(read_body, reader=reader, form=form)
    receipt, [batch] = await ingest_messages(request, [ingestion], await request.body(), read)
    faults = _faults(batch)
    if faults:
        aggregator.refused(stream, source, f"message-{format}", len(faults))
    for kind, count in batch.told.skipped.items():
        aggregator.observer.skipped(name, kind, count)
    if faults and receipt is None:
        first = faults[0]
        raise NothingTakenError(
            f"no reading of the message was accepted; {first.field}: {first.reason}", faults
        )
    counts = {status: int(np.count_nonzero(batch.statuses == status)) for status in Verdict}
    return PostedMessage(
        stream=name,
        source=source,
        token=None if receipt is None else receipt.token,
        rows=sum(counts.values()),
        retained=counts[Verdict.RETAINED],
        already_retained=counts[Verdict.ALREADY_RETAINED],
        below_watermark=counts[Verdict.BELOW_WATERMARK],
        skipped=batch.told.skipped,
        refused=[f"{fault.field}: {fault.reason}" for fault in faults],
        warnings=warnings_on(stream, batch),
    )


def _most(maps: Sequence[DocumentMap]) -> int:
    """Return the maximum number of readings in a message: one for each mapping, unless a mapping
    reads an array.
    """
    return min(_ROWS, sum(1 if each.each is None else _ROWS for each in maps))


def _faults(batch: Batch) -> list[Fault]:
    """Return the rejections by the parser and by the stream."""
    return [
        *(Fault(field=where, reason=reason) for where, reason in batch.told.refused),
        *(
            Fault(
                field=batch.told.readings[refusal.row].where,
                reason=f"{refusal.field} {refusal.reason}",
                value=refusal.value,
                expected=refusal.expected,
            )
            for refusal in batch.refusals
        ),
    ]
