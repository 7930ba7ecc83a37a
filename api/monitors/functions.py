"""The functions across sources in this process: definitions, exchanges and results.

The protocol is the library's (:mod:`decaysketch.monitor.functions`). An exchange rebuilds the hub
from its row, on a thread, and writes the new state before the response. If another process wrote
one meanwhile, it begins again. A message may be accepted twice, which changes nothing. Where
sources post their sketches, a result is read from the stream.

Every process looks at all results once per second, for followers, metrics and alerts. It reads a
row again only if that changed, or if a source may be silent since. A process that finds other
alerts writes them by compare-and-set, with their messages for the outbox. One process succeeds.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from api.errors import BusyError, UnknownFunctionError
from api.journal.storage import Reader, Storage
from api.logs import Seldom
from api.monitors import function_rows
from api.monitors.changes import Named
from api.monitors.coalesced_reads import Looks
from api.monitors.defining import refused
from api.monitors.event_fanout import Mailboxes
from api.monitors.function_alerts import turned
from api.monitors.function_rows import FUNCTIONS, FunctionRow
from api.monitors.outbox import Outbox
from api.monitors.webhooks import Webhooks
from api.service.aggregator import Aggregator
from api.service.streams import Stream
from decaysketch.core.time_units import now_in
from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.monitor.fields import mapping_of, sequence_of, take_known, whole
from decaysketch.monitor.functions import FunctionHub, FunctionSpec, FunctionState, read_posts

__all__ = ["MOST_FUNCTIONS", "MOST_STREAM_FUNCTIONS", "Functions", "Seen", "summary"]

_log = logging.getLogger(__name__)

MOST_FUNCTIONS: Final = 32
"""Functions of all streams."""

MOST_STREAM_FUNCTIONS: Final = 4
"""Functions of one stream."""

_LOOK_S = 1.0
_TRIES = 20  # of an exchange, while other processes write
_MOST_MESSAGES = 1_000
_MOST_ITEM_BITS = 53  # of a key in JSON


@dataclass(frozen=True, slots=True)
class Seen:
    """A function, as this process saw it last.

    Attributes:
        row: without the hub's state.
        hub: the hub's result.
        state: the same, read from posts where sources post.
    """

    row: FunctionRow
    spec: FunctionSpec
    hub: FunctionState
    state: FunctionState


class _Exchange(NamedTuple):
    """A source's request."""

    epoch: int | None
    arrivals: int
    posts: int
    messages: Sequence[object]


class _Exchanged(NamedTuple):
    """The result of an exchange.

    Attributes:
        messages: for the source.
        epoch: the function's, or the next one.
        posts: whether sources post in it.
        state: to write. None: nothing changed.
        waiting: sources that should exchange now.
    """

    messages: list[dict[str, Any]]
    epoch: int
    posts: bool
    state: str | None
    waiting: list[str]


class Functions:
    """The functions of all streams, as one process sees them.

    Args:
        aggregator: the streams' aggregator.
        storage: the same database.
        mailboxes: the followers' mailboxes.
        outbox: sends alerts.
        webhooks: the permitted receivers.
    """

    def __init__(
        self, aggregator: Aggregator, storage: Storage, mailboxes: Mailboxes, outbox: Outbox,
        webhooks: Webhooks,
    ) -> None:  # fmt: skip
        self._aggregator = aggregator
        self._storage = storage
        self._mailboxes = mailboxes
        self._outbox, self._webhooks = outbox, webhooks
        # Exchanges with one function take turns here. Other processes are seen by the version.
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._seen: dict[int, Seen] = {}  # by id
        self._looks = Looks("functions", self._look, _LOOK_S)
        self._unreadable = Seldom(_log)

    # ------------------------------------------------------------------------------- definitions

    def read_spec(self, stream: Stream, form: object) -> FunctionSpec:
        """Return a spec that is valid for a stream.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain, or too many
                counters.
            InvalidRequestError: the stream does not count keys by time, its keys do not fit into
                JSON numbers, the second stream has other parameters, or the webhook is not allowed.
            UnknownStreamError: there is no such second stream.
        """
        params: Any = stream.recipe.params
        if stream.recipe.kind.input.named_by != "key" or params.clock != "time":
            raise refused("kind", "the stream does not count keys by time (family ecm)", form)
        spec = FunctionSpec.from_dict(form, time_unit=params.time_unit)
        spec.shape(params.depth, params.width)
        bits = params.key_bits
        if spec.kind == "frequent" and (bits is None or bits > _MOST_ITEM_BITS):
            raise refused("kind", "frequent needs integer keys: key_bits of 1 to 53", bits)
        if spec.other is not None and self._aggregator.stream(spec.other).recipe != stream.recipe:
            raise refused("other", "the second stream has other parameters", spec.other)
        if spec.webhook is not None:
            try:
                self._webhooks.check(spec.webhook)
            except ValueError as error:
                raise refused("webhook", str(error), spec.webhook) from None
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
        now_us, of = self._aggregator.now_us(), (stream.id, stream.name)
        new = await self._storage.write(
            lambda tx: FUNCTIONS.define(
                tx, of, name, spec.to_dict(), now_us=now_us, of_stream=MOST_STREAM_FUNCTIONS,
                in_all=MOST_FUNCTIONS,
            )
        )  # fmt: skip
        return await self.find(stream, name), new

    async def remove(self, stream: Stream, name: str) -> None:
        """Delete a function.

        Raises:
            UnknownFunctionError: there is none.
        """
        if not await self._storage.write(lambda tx: FUNCTIONS.remove(tx, stream.id, name)):
            raise UnknownFunctionError(stream.name, name)

    async def find(self, stream: Stream, name: str) -> FunctionRow:
        """Return a stored function.

        Raises:
            UnknownFunctionError: there is none.
            StorageError: the database is out of reach.
        """
        row = await self._storage.read(lambda rx: function_rows.find(rx, stream.id, name))
        if row is None:
            raise UnknownFunctionError(stream.name, name)
        return row

    async def of_stream(self, stream: Stream) -> list[FunctionRow]:
        """Return a stream's functions, by name."""
        return await self._storage.read(lambda rx: function_rows.of_stream(rx, stream.id))

    async def state(self, stream: Stream, row: FunctionRow) -> FunctionState:
        """Return the result that the hub vouches for now."""
        return (await self._read(stream, row)).state

    async def _read(self, stream: Stream, row: FunctionRow) -> Seen:
        compute = self._aggregator.compute
        hub = await compute(_state_of, row, stream.recipe.params, self._now_s())
        seen = Seen(replace(row, state=None), FunctionSpec.from_dict(row.spec), hub, hub)
        return await self._with_posts(stream, seen)

    async def _with_posts(self, stream: Stream, seen: Seen) -> Seen:
        """The same with the present result, where sources post."""
        if not seen.hub.posts:
            return seen
        streams = [stream]
        if seen.spec.other is not None:
            if not self._aggregator.knows(seen.spec.other):
                return replace(seen, state=replace(seen.hub, certain=False))
            streams.append(self._aggregator.stream(seen.spec.other))
        now_us = self._aggregator.now_us()
        state = await self._aggregator.compute(_posted, seen, streams, now_us)
        return replace(seen, state=state)

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
        asked = _read(form)
        row = await self.find(stream, name)
        async with self._turns[row.id]:
            for _ in range(_TRIES):
                row = await self.find(stream, name)
                found = await self._aggregator.compute(
                    _exchanged, row, stream.recipe.params, source, asked, self._now_s()
                )
                if found.state is not None and not await self._written(row, found):
                    continue
                if found.waiting:
                    said = {"function": name, "epoch": found.epoch}
                    self._mailboxes.to_sites(stream.id, "function", name, said, found.waiting)
                answer: dict[str, Any] = {"epoch": found.epoch, "messages": found.messages}
                if found.epoch != asked.epoch:
                    answer |= {"spec": dict(row.spec), "posts": found.posts}
                return answer
        raise BusyError

    async def _written(self, row: FunctionRow, found: _Exchanged) -> bool:
        assert found.state is not None
        epoch, state = found.epoch, found.state
        return await self._storage.write(lambda tx: function_rows.step(tx, row, epoch, state))

    # -------------------------------------------------------------------------------------- events

    async def watch(self) -> None:
        """Look at all results, once."""
        await asyncio.sleep(_LOOK_S)
        await self._looks.watch()

    async def look(self) -> None:
        """Read all functions.

        Raises:
            StorageError: the database is out of reach.
        """
        await self._looks.now()

    def every(self) -> list[tuple[str, Seen]]:
        """Return all functions as they were seen last, each with its stream's name, by names."""
        found = [
            (stream.name, seen)
            for seen in self._seen.values()
            if (stream := self._aggregator.stream_by_id(seen.row.stream_id)) is not None
        ]
        return sorted(found, key=lambda each: (each[0], each[1].row.name))

    def of_followed(self, stream: Stream) -> list[Seen]:
        """Return a stream's functions as they were seen last, for a new follower."""
        return [each for each in self._seen.values() if each.row.stream_id == stream.id]

    async def _look(self) -> None:
        now_s = self._now_s()

        def read(rx: Reader) -> tuple[dict[int, tuple[int, int]], list[FunctionRow]]:
            numbers = function_rows.numbers(rx)
            news = [i for i, number in numbers.items() if self._is_news(i, number, now_s)]
            return numbers, function_rows.some(rx, news) if news else []

        numbers, rows = await self._storage.read(read)
        seen = {i: self._seen[i] for i in numbers if i in self._seen} | {
            row.id: row for row in rows
        }
        for number in self._seen.keys() - numbers.keys():
            gone = self._seen.pop(number).row
            said = {"function": gone.name}
            self._mailboxes.to_people(gone.stream_id, "gone", f"function/{gone.name}", said)
        found: dict[int, Seen] = {}
        for number, each in seen.items():
            stream = self._aggregator.stream_by_id(
                each.stream_id if isinstance(each, FunctionRow) else each.row.stream_id
            )
            if stream is None:  # created or deleted at this moment, elsewhere
                continue
            try:
                now = await (
                    self._read(stream, each) if isinstance(each, FunctionRow)
                    else self._with_posts(stream, each)
                )  # fmt: skip
            except DecaySketchError as error:  # the others go on
                self._unreadable.say(logging.ERROR, "a function cannot be read: %s", error)
                continue
            now = await self._alerted(stream, now)
            self._tell(stream, self._seen.get(number), now)
            # At once: a follower who comes now begins with it.
            found[number] = self._seen[number] = now
        self._seen = found

    def _is_news(self, number: int, version: tuple[int, int], now_s: float) -> bool:
        seen = self._seen.get(number)
        return seen is None or seen.row.number != version or now_s >= seen.hub.until_s

    async def _alerted(self, stream: Stream, seen: Seen) -> Seen:
        """Write changed alerts, with their messages."""
        now_us = self._aggregator.now_us()
        named = Named(stream.name, stream.row.incarnation, stream.recipe.params.time_unit)
        change = turned(seen.row, named, seen.spec, seen.state, now_us)
        if change is None:
            return seen
        alerts, messages = change
        dropped = await self._storage.write(
            lambda tx: function_rows.alert(tx, seen.row, alerts, messages, now_us)
        )
        if dropped is None:  # another process has: read the row again
            return replace(seen, hub=replace(seen.hub, until_s=0.0))
        self._outbox.wake()
        return replace(seen, row=replace(seen.row, alerts=alerts))

    def _tell(self, stream: Stream, before: Seen | None, now: Seen) -> None:
        """Notify a changed result's followers."""
        if stream.id not in self._mailboxes.followed:
            return
        said = summary(now)
        if before is None or summary(before) != said:
            self._mailboxes.to_people(stream.id, "function", now.row.name, said)


def summary(seen: Seen) -> dict[str, Any]:
    """Return the event about a function, without its counts of messages."""
    fields = asdict(seen.state)
    kept = ("certain", "value", "low", "high", "frequent", "silent", "posts", "costly")
    of = {"function": seen.row.name, "epoch": seen.row.epoch}
    return of | {name: fields[name] for name in kept}


def _state_of(row: FunctionRow, params: object, now_s: float) -> FunctionState:
    """Return the hub's result in a row. On a thread."""
    return _hub(row, params).state(now_s)


def _hub(row: FunctionRow, params: Any) -> FunctionHub:
    saved = None if row.state is None else json.loads(row.state)
    spec = FunctionSpec.from_dict(row.spec)
    return FunctionHub(spec, params.depth, params.width, row.epoch, saved)


def _posted(seen: Seen, streams: Sequence[Stream], now_us: int) -> FunctionState:
    """Return the result that posted sketches have. On a thread."""
    snapshots = [
        stream.snapshot(set(seen.spec.sites) & set(stream.source_names)) for stream in streams
    ]
    now = now_in(streams[0].recipe.params.time_unit, now_us * 1000)
    clocks = [each.clock for each in snapshots] + [now]
    latest = max((each for each in clocks if each is not None), default=0)
    return read_posts(seen.hub, seen.spec, snapshots, latest)


def _exchanged(
    row: FunctionRow, params: object, source: str, asked: _Exchange, now_s: float
) -> _Exchanged:
    """Exchange messages. On a thread."""
    hub = _hub(row, params)
    if asked.epoch != row.epoch:
        return _Exchanged([], row.epoch, hub.posts, None, [])
    said, changed = hub.exchange(
        source, asked.messages, now_s, arrivals=asked.arrivals, posts=asked.posts
    )
    if not changed:
        return _Exchanged(said, row.epoch, hub.posts, None, [])
    return _Exchanged(said, hub.epoch, hub.posts, json.dumps(hub.saved), hub.waiting)


def _read(form: object) -> _Exchange:
    fields: Mapping[str, Any] = mapping_of("an exchange", form)
    take_known("an exchange", fields, ("epoch", "messages"), ("arrivals", "posts"))
    epoch = fields["epoch"]
    if epoch is not None:
        epoch = whole("epoch", epoch)
    arrivals, posts = (whole(name, fields.get(name, 0)) for name in ("arrivals", "posts"))
    messages = sequence_of("messages", fields["messages"], _MOST_MESSAGES)
    if epoch is None and messages:
        raise ParameterError(f"epoch is None with {len(messages)} messages; expected their epoch")
    return _Exchange(epoch, arrivals, posts, messages)
