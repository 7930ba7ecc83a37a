"""A relay: it merges the accepted posts of this aggregator, and posts them to another one as one
source.

For each stream the upstream stores, under this relay's name, the join of all forwarded sketches. A
*delta* is the join of all posts since the last one. The relay posts it after ``upstream_flush_s``
at the latest, so duplicates that came by several gateways meanwhile cross once. A sketch may be
sent any number of times, so nothing here has to happen exactly once:

- *Durable state* is in two places. The journal contains all acknowledged posts. The upstream's own
  database shows which have arrived: the digest of its content from this relay. States are
  canonical, so the upstream has everything exactly if that digest equals the stream's digest here.
  No cursor is stored that a restored backup, a compaction or a re-created stream could make wrong.
- *After a start*, and whenever the upstream's gaps are unknown, the relay requests its digest. If
  it differs, the relay sends the *whole* stream, a sketch of bounded size, and deltas from there
  on. It does the same every ``upstream_check_s``, which finds an upstream that went back.
- *Waiting data* for an absent upstream is one sketch per stream, however long that lasts. If all
  together have more than ``upstream_queue_rows``, the relay drops the largest and later sends the
  complete stream. Posts from below are accepted as before.
- *A post that changes nothing* is not forwarded: a stream whose digest equals the forwarded one has
  nothing new, for any posts. So a relay that is indirectly its own upstream comes to rest.

Streams in ``upstream_paths`` are also forwarded source by source, in the same way: a line for each
source (:mod:`api.relay.parts`).

The join covers all sources: separately, duplicates would cross as often as they came. A joined
source cannot be removed again. So a source that is revoked here stays upstream, in this relay's
posts. See ``_tell_more``.

Among several processes over one database, the lease holder forwards. If two processes believe that
they have it, all is sent twice, and counted once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from api.journal import lease
from api.journal.log import StorageError
from api.journal.storage import Storage
from api.logs import Seldom
from api.relay.parts import SourcePart
from api.relay.upstream import Upstream
from api.service.aggregator import Aggregator
from api.service.budget import BUFFER_ROWS
from api.service.merging import MergeBuffer
from api.service.observer import RELAY_STATES
from api.service.streams import Stream, differences
from api.settings import Settings
from decaysketch.client.delivery import (
    HELD_S,
    Backoff,
    Held,
    Later,
    Outcome,
    Paused,
    Refused,
    Taken,
)
from decaysketch.ingest.views import ViewOf

__all__ = ["Relay"]

_log = logging.getLogger(__name__)

_LEASE = "relay"
_LEASE_S = 6.0
_TICK_S = 0.5
_AT_ONCE = 4  # streams
_PAUSE_S = 60.0  # until a rejected post is tried again
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 60.0
_LONGEST_REASON = 1000  # characters
_LAST_S = 5.0  # to forward the last posts at shutdown


@dataclass(eq=False, slots=True)
class _Line:
    """The knowledge about one stream upstream.

    Attributes:
        stream: the stream here, or one of its sources.
        source: name upstream of the forwarded posts.
        incarnation: the stream's incarnation there. None: not checked yet.
        passed_on: digest of the stream here when the upstream was last known to have all of it.
        generation: the stream's generation here at that time.
        perhaps: digest that the upstream would have if a post arrived whose response did not.
        held: digest of the upstream's content from this relay at the last check. None: nothing, or
            it was posted to since.
        exact: whether nothing was taken between the digest and the delta that was posted with it,
            so that the upstream contains exactly that.
        token: the last post's token.
        since_s: since when the upstream lacks something.
        check_s: when to check it again.
        not_before_s: nothing is sent before.
        problem: why nothing is.
        more: whether it was found to hold content that is not here.
    """

    stream: Stream | SourcePart
    source: str
    incarnation: str | None = None
    passed_on: str | None = None
    generation: int = -1
    exact: bool = False
    perhaps: str | None = None
    held: str | None = None
    token: str = ""
    since_s: float | None = None
    check_s: float = 0.0
    not_before_s: float = 0.0
    problem: str | None = None
    more: bool = False

    @property
    def state(self) -> str:
        """Return a state in ``RELAY_STATES``."""
        if self.problem is not None:
            return "paused"
        if self.since_s is not None:
            return "waiting"
        return "more" if self.more else "passed_on"


class _FailedError(Exception):
    """A request failed."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Relay:
    """Forwards an aggregator's accepted posts.

    Args:
        aggregator: the stream owner.
        storage: its database, for the lease.
        upstream: the destination.
        settings: the streams, the frequency, and the limits for waiting data.
    """

    def __init__(
        self, aggregator: Aggregator, storage: Storage, upstream: Upstream, settings: Settings
    ) -> None:
        self._aggregator, self._storage, self._upstream = aggregator, storage, upstream
        self._wanted = settings.upstream_streams.split()
        self._wanted_parts = settings.upstream_paths.split()
        self._flush_s, self._check_s = settings.upstream_flush_s, settings.upstream_check_s
        self._most_rows = settings.upstream_queue_rows
        self._lines: dict[int | tuple[int, str], _Line] = {}
        self._streams_version = -1
        self._me = secrets.token_hex(8)
        self._renew_s = self._mine_until_s = float("-inf")
        self._backoff = Backoff(_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S, random.Random())
        self._not_before_s = float("-inf")  # of all: the upstream does not answer
        self._is_away = False
        self._away, self._no_lease = Seldom(_log), Seldom(_log)

    # ------------------------------------------------------------------------------------- rounds

    async def watch(self) -> None:
        """Forward due streams, once."""
        await asyncio.sleep(min(_TICK_S, max(self._flush_s, 0.02)))
        if await self._has_lease():
            await self.pass_on()
        else:
            self._rest()
        self._tell()

    async def finish(self) -> None:
        """Forward the last posts, as far as that takes a moment, and release the lease."""
        if _now() >= self._mine_until_s:
            return
        try:
            async with asyncio.timeout(_LAST_S):
                await self.pass_on(at_once=True)
        except TimeoutError:
            _log.warning("the upstream lacks some accepted rows; the next start sends them")
        try:
            await self._storage.write(lambda tx: lease.release(tx, _LEASE, self._me))
        except StorageError as error:
            _log.warning("the relay's lease was not released and ends by itself: %s", error)

    async def pass_on(self, *, at_once: bool = False) -> None:
        """Forward the due part of every stream. With ``at_once``, forward all missing data."""
        self._see_streams()
        await self._bound()
        turns = asyncio.Semaphore(_AT_ONCE)

        async def in_turn(line: _Line) -> None:
            async with turns:
                if _now() >= self._not_before_s:
                    await self._try(line)

        async with asyncio.TaskGroup() as tasks:
            for line in list(self._lines.values()):
                if self._is_due(line, at_once):
                    tasks.create_task(in_turn(line))

    def _see_streams(self) -> None:
        """Keep a line for every stream and source to be forwarded, including new ones."""
        version = self._aggregator.streams_version
        if version == self._streams_version and not self._wanted_parts:
            return
        self._streams_version = version
        lines, own = self._lines, self._upstream.source
        found: dict[int | tuple[int, str], _Line] = {}
        for stream in self._aggregator.streams():
            if _matches(stream, self._wanted):
                found[stream.id] = lines.get(stream.id) or _Line(stream, own)
            if _matches(stream, self._wanted_parts):
                for name in set(stream.source_names) - {*stream.revoked}:
                    key = stream.id, name
                    part = SourcePart(stream, name)
                    found[key] = lines.get(key) or _Line(part, f"{own}/{name}")
        self._lines = found

    def _is_due(self, line: _Line, at_once: bool) -> bool:
        now_s = _now()
        if line.generation != line.stream.generation and line.since_s is None:
            line.since_s = now_s
        if now_s < max(line.not_before_s, self._not_before_s):
            return False
        if line.since_s is not None and (at_once or now_s - line.since_s >= self._flush_s):
            return True
        return not at_once and now_s >= line.check_s

    async def _bound(self) -> None:
        """Merge waiting sketches where they are many, and drop the largest where they are too
        many.
        """
        waiting = self._waiting()
        for buffer in waiting.values():
            if buffer.is_large or (buffer.waiting and _rows(waiting) > self._most_rows):
                await self._aggregator.compute_of(buffer.work_rows)(buffer.fold)
        for line in sorted(waiting, key=lambda each: -waiting[each].counted_rows):
            if _rows(waiting) <= self._most_rows:
                break
            line.stream.gather(None)
            del waiting[line]
            self._aggregator.observer.relay_let_go(line.stream.name)

    def _waiting(self) -> dict[_Line, MergeBuffer]:
        """Return each stream's gathered buffer."""
        return {
            line: buffer
            for line in self._lines.values()
            if (buffer := line.stream.gathered) is not None
        }

    def _rest(self) -> None:
        """Drop all lines, because another process forwards."""
        for line in self._lines.values():
            line.stream.gather(None)
        self._lines.clear()

    # ----------------------------------------------------------------------------------- a stream

    async def _try(self, line: _Line) -> None:
        try:
            await self._pass_on(line)
        except _FailedError as failed:
            self._fail(line, failed.outcome)
        except Exception as fault:  # of this stream; the others go on
            _log.exception("stream %r is not forwarded", line.stream.name)
            self._aggregator.observer.failed("relay")
            line.problem = f"{type(fault).__name__}: {fault}"
            line.not_before_s = _now() + _PAUSE_S
        else:
            self._backoff.reset()
            if self._is_away or line.problem is not None:
                _log.info("stream %r is forwarded again", line.stream.name)
            line.problem, self._is_away = None, False
            self._away.over()

    async def _pass_on(self, line: _Line) -> None:
        if line.incarnation is None or _now() >= line.check_s:
            await self._look(line)
            await self._check(line)
        gathered = line.stream.gathered
        if gathered is not None:
            await self._aggregator.compute_of(gathered.work_rows)(gathered.fold)
        if (
            line.passed_on is None
            or gathered is None
            or gathered.counted_rows > line.stream.joined_rows
        ):
            await self._send_whole(line)
        else:
            await self._send_new(line)

    async def _look(self, line: _Line) -> None:
        """Check that the stream there has the same sketch configuration."""
        stream = line.stream
        if stream.row.id_key is not None:
            raise _FailedError(
                Paused(
                    f"the ids of stream {stream.name!r} are hashed with this server's secret, so "
                    "no other server accepts their sketches"
                )
            )
        outcome = await self._upstream.look(stream.name)
        if isinstance(outcome, Paused) and outcome.reason.startswith("404:"):
            outcome = Paused(_cure(stream, outcome.reason))
        if not isinstance(outcome, Taken):
            raise _FailedError(outcome)
        if isinstance(stream, SourcePart):
            stream.from_level = max(stream.row.from_level, outcome.fields.get("from_level") or 0)
        if different := _differences(stream, outcome.fields):
            listed = "; ".join(
                f"{name} is {mine!r} here, {other!r} there"
                for name, (mine, other) in different.items()
            )
            raise _FailedError(Paused(f"stream {stream.name!r} differs upstream: {listed}"))
        incarnation = str(outcome.fields.get("incarnation"))
        if line.incarnation != incarnation:
            line.token = ""  # of the one before
        line.incarnation = incarnation

    async def _check(self, line: _Line) -> None:
        """Check the upstream's content from this relay. Unless it equals the forwarded content, the
        upstream's gaps are unknown.
        """
        held, known = await self._held(line), False
        if line.passed_on is not None:
            if held is not None and held == line.perhaps:
                line.passed_on, line.exact = held, True
            known = line.exact and held == line.passed_on
            line.more = line.more and not known  # it has no rows that are missing here
            if line.more and held is not None:  # unchanged since everything was forwarded
                known = held == line.held
        if not known:
            line.passed_on = None
        line.held = held
        line.check_s = _now() + self._next_check_s(line)

    def _next_check_s(self, line: _Line) -> float:
        return min(self._check_s, _PAUSE_S) if line.more else self._check_s

    async def _held(self, line: _Line) -> str | None:
        held = await self._upstream.held(line.stream.name, line.token, line.source)
        if isinstance(held, Later | Paused):
            raise _FailedError(held)
        return held

    async def _send_whole(self, line: _Line) -> None:
        """Send all content of the stream, unless the upstream has exactly that."""
        stream, observer = line.stream, self._aggregator.observer
        compute = self._aggregator.compute_of(stream.joined_rows)
        # Before reading the stream: posts accepted during the read are in both.
        stream.gather(MergeBuffer(stream.recipe))
        generation = stream.generation
        done = False
        try:
            digest, _ = await compute(stream.summary)
            there = line.held if stream.source_count else digest  # there is nothing to be sent
            if digest != there:
                blob, digest = await compute(_whole, stream)
                await self._post(line, blob)
                observer.relayed(stream.name, len(blob), whole=True)
                line.held = await self._held(line)
            done = True
        finally:
            if not done:
                stream.gather(None)
        more = line.held != digest and (bool(stream.source_count) or line.held is not None)
        if more and not line.more:
            self._tell_more(line)
        line.more = more
        line.check_s = _now() + self._next_check_s(line)
        self._has(line, digest, generation, exact=True)

    async def _send_new(self, line: _Line) -> None:
        """Send the posts taken since, unless they change nothing."""
        stream, observer = line.stream, self._aggregator.observer
        generation = stream.generation
        # Before cutting the delta, so that the delta has all its new rows.
        digest, rows = await self._aggregator.compute_of(stream.joined_rows)(stream.summary)
        exact = stream.generation == generation
        if digest == line.passed_on and not exact:
            return  # look again, once it is quiet for a moment
        delta = stream.gather(MergeBuffer(stream.recipe))
        if delta is None:  # a source was dropped in between
            stream.gather(None)
            return
        done = digest == line.passed_on
        try:
            if not done:
                encode = partial(_delta, stream, delta)
                blob = await self._aggregator.compute_of(rows)(encode)
                line.perhaps = digest if exact else None
                await self._post(line, blob)
                observer.relayed(stream.name, len(blob), whole=False)
                line.held = None
            done = True
        finally:
            if not done:
                newer = stream.gather(delta)
                if newer is None:  # a source was dropped, of which some of it may be
                    stream.gather(None)
                else:
                    delta.add(newer)
                    await self._aggregator.compute_of(rows)(delta.fold)
        self._has(line, digest, generation, exact=exact)

    async def _post(self, line: _Line, blob: bytes) -> None:
        outcome = await self._upstream.post(line.stream.name, blob, line.source)
        if not isinstance(outcome, Taken):
            raise _FailedError(outcome)
        line.token = str(outcome.fields.get("token"))
        if not line.token.startswith(f"{line.stream.name}:{line.incarnation}:"):
            raise _FailedError(
                Later("the upstream's stream was created again; the relay checks it again")
            )

    def _has(self, line: _Line, digest: str, generation: int, *, exact: bool) -> None:
        """Record that the upstream has all content that the stream had at this digest."""
        line.passed_on, line.generation, line.exact = digest, generation, exact
        line.perhaps = None
        line.since_s = None if line.stream.generation == generation else _now()

    # ------------------------------------------------------------------------------------- reports

    def _fail(self, line: _Line, outcome: Outcome) -> None:
        observer, now_s = self._aggregator.observer, _now()
        match outcome:
            case Later(reason, after_s):
                line.incarnation = None  # it may have gone back, or be another one
                self._not_before_s = now_s + max(self._backoff.next_s(), after_s)
                self._is_away = True
                self._away.say(
                    logging.WARNING,
                    "the upstream does not respond, so accepted rows wait: %s",
                    _in_a_line(reason),
                )
                observer.relay_failed("unanswered")
                return
            case Held(reason, after_s=after_s):
                line.not_before_s = now_s + (after_s or HELD_S)
                observer.relay_failed("held")
            case Refused():
                reason = outcome.reason
                line.not_before_s = now_s + _PAUSE_S
                observer.relay_failed("refused")
            case Paused(reason):
                line.incarnation = None
                line.not_before_s = now_s + _PAUSE_S
                observer.relay_failed("paused")
            case Taken():
                raise AssertionError("an answer of success is no failure")
        reason = _in_a_line(reason)
        if line.problem != reason:
            _log.error("stream %r is not forwarded: %s", line.stream.name, reason)
        line.problem = reason

    def _tell_more(self, line: _Line) -> None:
        """Report content that is upstream only. There are three causes: a source was revoked here
        after its posts were forwarded, this database was restored from an earlier state, or another
        client posts there under this name. Dropping the content would be wrong in two of three, so
        people decide.
        """
        name = line.source
        _log.warning(
            "stream %r: the upstream has rows under %r that are not here. If they are from a "
            "source that was revoked here, revoke %r there and reinstate it: the relay then posts "
            "the rest again",
            line.stream.name, name, name,
        )  # fmt: skip

    def _tell(self) -> None:
        lines = self._lines.values()
        states = {state: sum(line.state == state for line in lines) for state in RELAY_STATES}
        oldest_s = min((line.since_s for line in lines if line.since_s is not None), default=_now())
        self._aggregator.observer.relay_stands(states, _now() - oldest_s, _rows(self._waiting()))

    async def _has_lease(self) -> bool:
        """Return whether this process is the one that forwards."""
        now_s = _now()
        if now_s >= self._renew_s:
            self._renew_s = now_s + _LEASE_S / 3
            now_us = self._aggregator.now_us()
            try:
                mine = await self._storage.write(
                    lambda tx: lease.take(tx, _LEASE, self._me, now_us, int(_LEASE_S * 1e6))
                )
            except StorageError as error:
                self._no_lease.say(logging.ERROR, "the relay has no lease: %s", error)
            else:
                self._no_lease.over()
                self._mine_until_s = now_s + _LEASE_S if mine else float("-inf")
        return _now() < self._mine_until_s


def _now() -> float:
    return asyncio.get_running_loop().time()


def _rows(waiting: Mapping[_Line, MergeBuffer]) -> int:
    """Return the rows as they are counted, without the overhead of an empty buffer."""
    return sum(buffer.counted_rows - BUFFER_ROWS for buffer in waiting.values())


def _in_a_line(text: str) -> str:
    """Return another server's message in a form that is safe in a log."""
    return " ".join(text.split())[:_LONGEST_REASON]


def _matches(stream: Stream, wanted: Sequence[str]) -> bool:
    return any(fnmatchcase(stream.name, each) for each in wanted)


def _delta(stream: Stream | SourcePart, posts: MergeBuffer) -> bytes:
    """Return some posts as encoded bytes."""
    return stream.encoded(posts) if isinstance(stream, SourcePart) else posts.to_bytes()


def _whole(stream: Stream | SourcePart) -> tuple[bytes, str]:
    """Return all content of a stream as encoded bytes, and the digest of just that."""
    blob = stream.to_bytes()
    return blob, stream.decode(blob).digest


def _form(stream: Stream | SourcePart) -> dict[str, Any]:
    """Return the form that creates an equal stream."""
    row = stream.row
    beside = {"from_level": row.from_level} if row.from_level else {}
    recipe = stream.recipe.to_dict()
    return {**recipe, "max_clock_skew_s": row.max_clock_skew_s, **beside, **row.about}


def _cure(stream: Stream | SourcePart, reason: str) -> str:
    """Return the remedy for a stream that is missing upstream. A derived stream is created with
    its origin. Otherwise the origin could not have a derived stream with its name.
    """
    said = f"the upstream has no stream {stream.name!r}"
    if stream.row.view is None or isinstance(stream, SourcePart):
        form = json.dumps(_form(stream))
        return f"{said} ({reason}); create it there: PUT /v1/streams/{stream.name} {form}"
    view = ViewOf.from_dict(stream.row.view)
    devices = {"id": list(view.parts), "capacity": stream.recipe.params.capacity}
    return (
        f"{said}, a derived stream: PUT /v1/streams/{view.of} there as it was created here, with "
        f"{json.dumps({'views': {'devices': devices}})[1:-1]}"
    )


def _differences(
    stream: Stream | SourcePart, there: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """Return the differences from the stream upstream, each field with both values.

    The upstream must allow times as far ahead as this server. Otherwise it would reject posts
    that are acknowledged here. It may skip levels of a source that are stored here, but this
    server may not skip levels that the upstream expects.
    """
    ours = dict(stream.recipe.to_dict())
    theirs = {name: there.get(name) for name in ours}
    if not isinstance(theirs["params"], dict):
        return {"params": (ours["params"], theirs["params"])}
    different = dict(differences(ours, theirs))
    skew_s, limit_s = stream.row.max_clock_skew_s, there.get("max_clock_skew_s")
    if limit_s is not None and (skew_s is None or skew_s > limit_s):
        different["max_clock_skew_s"] = skew_s, limit_s
    level, other = stream.row.from_level, there.get("from_level") or 0
    if level > other if isinstance(stream, SourcePart) else level != other:
        different["from_level"] = level, other
    return different
