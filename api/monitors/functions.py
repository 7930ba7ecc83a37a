"""The functions across sources in this process: definitions, exchanges and results.

The protocol is the library's (:mod:`decaysketch.monitor.functions`). An exchange rebuilds the hub
from its row, on a thread, and writes the new state before the response. If another process wrote
one meanwhile, it begins again. A message may be accepted twice, which changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from api.errors import BusyError, UnknownFunctionError
from api.journal.model import StorageError
from api.journal.storage import Storage, Writer
from api.logs import Seldom
from api.monitors import function_rows
from api.monitors.defining import refused
from api.monitors.event_fanout import Mailboxes
from api.monitors.function_rows import FunctionRow
from api.service.aggregator import Aggregator
from api.service.streams import Stream
from decaysketch.errors import ParameterError
from decaysketch.monitor.fields import mapping_of, sequence_of, take_known, whole
from decaysketch.monitor.functions import FunctionHub, FunctionSpec, FunctionState

__all__ = ["MOST_FUNCTIONS", "MOST_STREAM_FUNCTIONS", "Functions", "state_of", "summary"]

_log = logging.getLogger(__name__)

MOST_FUNCTIONS: Final = 32
"""Functions of all streams."""

MOST_STREAM_FUNCTIONS: Final = 4
"""Functions of one stream."""

_LOOK_S = 1.0
_TRIES = 20  # of an exchange, while other processes write
_MOST_MESSAGES = 1_000
_MOST_ITEM_BITS = 53  # of a key in JSON


class Functions:
    """The functions of all streams, as one process sees them.

    Args:
        aggregator: the streams' aggregator.
        storage: the same database.
        mailboxes: the followers' mailboxes.
    """

    def __init__(self, aggregator: Aggregator, storage: Storage, mailboxes: Mailboxes) -> None:
        self._aggregator = aggregator
        self._storage = storage
        self._mailboxes = mailboxes
        # Exchanges with one function take turns here. Other processes are seen by the version.
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._told: dict[tuple[int, str], dict[str, Any]] = {}
        self._failing = Seldom(_log)

    # ------------------------------------------------------------------------------- definitions

    def read_spec(self, stream: Stream, form: object) -> FunctionSpec:
        """Return a spec that is valid for a stream.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain, or too many
                counters.
            InvalidRequestError: the stream does not count keys by time, or its keys do not fit
                into JSON numbers.
        """
        params: Any = stream.recipe.params
        if stream.recipe.kind.input.named_by != "key" or params.clock != "time":
            raise refused("kind", "the stream does not count keys by time (family ecm)", form)
        spec = FunctionSpec.from_dict(form, time_unit=params.time_unit)
        spec.shape(params.depth, params.width)
        bits = params.key_bits
        if spec.kind == "frequent" and (bits is None or bits > _MOST_ITEM_BITS):
            raise refused("kind", "frequent needs integer keys: key_bits of 1 to 53", bits)
        return spec

    async def define(
        self, stream: Stream, name: str, spec: FunctionSpec
    ) -> tuple[FunctionRow, bool]:
        """Define a function, or redefine the one with its name. Return whether it is new. The same
        spec again changes nothing.

        Raises:
            TooManyFunctionsError: their number is at its limit.
            UnknownStreamError: the stream was deleted since.
            StorageError: it may or may not have happened.
        """
        now_us = self._aggregator.now_us()

        async def define(tx: Writer) -> bool:
            return await function_rows.define(
                tx, (stream.id, stream.name), name, spec.to_dict(), now_us=now_us,
                of_stream=MOST_STREAM_FUNCTIONS, in_all=MOST_FUNCTIONS,
            )  # fmt: skip

        new = await self._storage.write(define)
        return await self.find(stream, name), new

    async def remove(self, stream: Stream, name: str) -> None:
        """Delete a function.

        Raises:
            UnknownFunctionError: there is none.
        """
        if not await self._storage.write(lambda tx: function_rows.remove(tx, stream.id, name)):
            raise UnknownFunctionError(stream.name, name)

    async def find(self, stream: Stream, name: str) -> FunctionRow:
        """Return a function as it is stored.

        Raises:
            UnknownFunctionError: there is none.
            StorageError: the database is out of reach.
        """
        async with self._storage.reading() as rx:
            row = await function_rows.find(rx, stream.id, name)
        if row is None:
            raise UnknownFunctionError(stream.name, name)
        return row

    async def of_stream(self, stream: Stream) -> list[FunctionRow]:
        """Return a stream's functions, by name."""
        async with self._storage.reading() as rx:
            return await function_rows.of_stream(rx, stream.id)

    async def state(self, stream: Stream, row: FunctionRow) -> FunctionState:
        """Return the result that the hub vouches for now."""
        compute = self._aggregator.compute
        return await compute(state_of, row, stream.recipe.params, self._now_s())

    def _now_s(self) -> float:
        return self._aggregator.now_us() / 1e6

    # ----------------------------------------------------------------------------------- exchanges

    async def exchange(
        self, stream: Stream, name: str, source: str, form: object
    ) -> dict[str, Any]:
        """Accept a source's messages, and return those for it, with the function's epoch. If the
        source names another epoch, nothing is accepted, and the spec is returned.

        Raises:
            ParameterError: a field or message is invalid, or the source takes no part.
            UnknownFunctionError: there is no such function.
            RevokedSourceError: the source is revoked.
            BusyError: other processes wrote again and again.
            StorageError: it may or may not have been accepted. Repeat it.
        """
        stream.admit(source)
        epoch, arrivals, messages = _read(form)
        row = await self.find(stream, name)
        async with self._turns[row.id]:
            for _ in range(_TRIES):
                row = await self.find(stream, name)
                answer: dict[str, Any] = {"epoch": row.epoch, "messages": []}
                if epoch != row.epoch:
                    return answer | {"spec": dict(row.spec)}
                said, state, waiting = await self._aggregator.compute(
                    _exchanged, row, stream.recipe.params, source, messages, arrivals,
                    self._now_s(),
                )  # fmt: skip
                if state is None or await self._written(row, state):
                    if state is not None and waiting:
                        said_now = {"function": name, "epoch": row.epoch}
                        self._mailboxes.to_sites(stream.id, "function", name, said_now, waiting)
                    return answer | {"messages": said}
        raise BusyError

    async def _written(self, row: FunctionRow, state: str) -> bool:
        return await self._storage.write(lambda tx: function_rows.step(tx, row, state))

    # -------------------------------------------------------------------------------------- events

    async def watch(self) -> None:
        """Notify the followers of changed results, once."""
        await asyncio.sleep(_LOOK_S)
        if not self._mailboxes.followed:
            return
        try:
            async with self._storage.reading() as rx:
                rows = await function_rows.all_rows(rx)
        except StorageError as error:
            self._failing.say(logging.ERROR, "functions are not looked at: %s", error)
            return
        self._failing.over()
        seen = set()
        for row in rows:
            stream = self._aggregator.stream_by_id(row.stream_id)
            if stream is not None and row.stream_id in self._mailboxes.followed:
                seen.add((row.stream_id, row.name))
                self._tell(row, await self.state(stream, row))
        for key in self._told.keys() - seen:
            del self._told[key]

    def _tell(self, row: FunctionRow, state: FunctionState) -> None:
        key, said = (row.stream_id, row.name), summary(row, state)
        if self._told.get(key) != said:
            self._told[key] = said
            self._mailboxes.to_people(row.stream_id, "function", row.name, said)


def summary(row: FunctionRow, state: FunctionState) -> dict[str, Any]:
    """Return the event about a function, without its counts of messages."""
    fields = asdict(state)
    kept = ("certain", "value", "low", "high", "frequent", "silent", "costly")
    return {"function": row.name, "epoch": row.epoch} | {name: fields[name] for name in kept}


def state_of(row: FunctionRow, params: object, now_s: float) -> FunctionState:
    """Return a row's result. On a thread."""
    return _hub(row, params).state(now_s)


def _hub(row: FunctionRow, params: Any) -> FunctionHub:
    saved = None if row.state is None else json.loads(row.state)
    spec = FunctionSpec.from_dict(row.spec)
    return FunctionHub(spec, params.depth, params.width, row.epoch, saved)


def _exchanged(
    row: FunctionRow, params: object, source: str, messages: Sequence[object], arrivals: int,
    now_s: float,
) -> tuple[list[dict[str, Any]], str | None, list[str]]:  # fmt: skip
    """Return the messages for a source, the state to write, or None, and the sources that should
    exchange now. On a thread.
    """
    hub = _hub(row, params)
    said, changed = hub.exchange(source, messages, now_s, arrivals=arrivals)
    if not changed:
        return said, None, []
    return said, json.dumps(hub.saved), hub.waiting


def _read(form: object) -> tuple[int | None, int, Sequence[object]]:
    fields: Mapping[str, Any] = mapping_of("an exchange", form)
    take_known("an exchange", fields, ("epoch", "messages"), ("arrivals",))
    epoch = fields["epoch"]
    if epoch is not None:
        epoch = whole("epoch", epoch)
    arrivals = whole("arrivals", fields.get("arrivals", 0))
    messages = sequence_of("messages", fields["messages"], _MOST_MESSAGES)
    if epoch is None and messages:
        raise ParameterError(f"epoch is None with {len(messages)} messages; expected their epoch")
    return epoch, arrivals, messages
