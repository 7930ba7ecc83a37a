"""The whole network in one process, and what must hold of it.

Sensors see things, gateways build sketches of what reaches them, or leave the rows of it to the
service, and post until that is acknowledged or it becomes too much; replicas of the aggregator
share one database. Meanwhile replicas, the database and the links fail, sources are revoked,
streams are deleted and made anew.

What must hold, whatever happens:

1. what is acknowledged is durable at that moment; nothing is of a refused source, no number of a
   source was taken in two bodies, and no two states that contradict each other;
2. who names the token of a post reads that post, on any replica;
3. a replica that starts again holds everything acknowledged before;
4. what waits in memory is bounded, and every request comes to an end when nothing fails;
5. in the end every replica, also one that starts from the database alone, even after the newest
   snapshot of every source was damaged, has for every stream and every source exactly the bytes
   that the library builds in one go from the observations journaled, and counts each post once.

"Journaled" is what the omniscient observer of the database saw become durable, less what was
revoked or deleted afterwards; by 1 all that was acknowledged is part of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from simulation.contents import KINDS, START, Body, Kind, Observation, Rows
from simulation.database import Client, Database, Event, Faults
from simulation.loop import Loop
from simulation.network import LONGEST_S, Link, NoAnswerError, Server, Weather

from api.errors import (
    BusyError,
    ClosingError,
    IntervalConflictError,
    NotCaughtUpError,
    RevokedSourceError,
    StaleTokenError,
    UnknownSourceError,
    UnknownStreamError,
)
from api.ingest.building import count
from api.ingest.json_rows import read_lines
from api.journal.log import Post, StorageError
from api.service import aggregator as service
from api.service import catalog, committer, compactor, follower
from api.service import local_sources as sites
from api.service.aggregator import Aggregator, Limits
from api.service.committer import Receipt
from api.service.follower import ReplayError
from api.service.local_sources import Site
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.errors import ConflictingSketchError
from decaysketch.families import Sketch
from decaysketch.ingest.columns import Form, check

__all__ = ["Outcome", "ViolationError", "World", "run"]

_AGAIN = (BusyError, ClosingError, NoAnswerError, NotCaughtUpError, StorageError)
_TICKS_PER_S = 25  # units of the streams' time in a second of virtual time
_SETTLING_S = 30.0


class ViolationError(AssertionError):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Plan:
    """The size of a run, drawn from its seed."""

    kinds: tuple[str, ...]
    replicas: int
    gateways: int
    observations: int
    batch: int
    troubles: int
    duration_s: float
    limits: Limits
    chunk_bytes: int
    fold_pause_s: float

    @classmethod
    def of_seed(cls, seed: int, draw: Random | None = None) -> Plan:
        """The plan of a seed. ``draw`` goes on after it."""
        plan = cls.of(draw or Random(seed))
        if (sites := Random(~seed)).random() < 0.25:
            kinds = sorted(name for name, kind in KINDS.items() if kind.sited)
            plan = replace(plan, kinds=(sites.choice(kinds), *plan.kinds[1:]))
        return plan

    @classmethod
    def of(cls, draw: Random) -> Plan:
        """One at random."""
        names = sorted(name for name, kind in KINDS.items() if not kind.sited)
        return cls(
            kinds=tuple(draw.sample(names, draw.choice((1, 1, 1, 2)))),
            replicas=draw.choice((1, 2, 2, 3)),
            gateways=draw.randint(1, 3),
            observations=draw.randint(15, 40),
            batch=draw.randint(3, 8),
            troubles=draw.randint(0, 10),
            duration_s=draw.uniform(1.5, 4.0),
            limits=Limits(
                queue_posts=draw.choice((1, 3, 100)),
                queue_bytes=draw.choice((300, 100_000)),
                backlog_rows=draw.choice((40, 100_000)),
                poll_s=draw.choice((0.1, 0.3, 0.8)),
                compact_rows=draw.choice((2, 4, 8, 1000)),
                compact_bytes=draw.choice((500, 1 << 20)),
                compact_every_s=draw.choice((0.1, 0.4)),
                replacing_every_s=None,  # it only reads, and one more task moves the others
                wait_s=1.0,
            ),
            chunk_bytes=draw.choice((100, 400, 1 << 20)),
            fold_pause_s=draw.choice((0.02, 0.3)),
        )


@dataclass
class Outcome:
    """How a run went."""

    seed: int
    acknowledged: int = 0
    given_up: int = 0
    refused: int = 0
    tokens_checked: int = 0
    restarts: int = 0
    commits: int = 0
    compactions: int = 0
    virtual_s: float = 0.0
    trace: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Acknowledged:
    body: Body
    stream_id: int
    asked_s: float
    at_s: float


class World:
    """One run. Everything in it follows from the seed.

    Args:
        seed: any integer.
        aggregator: makes a replica; for planted faults.
        database: makes the database; for planted faults.
    """

    def __init__(
        self,
        seed: int,
        *,
        aggregator: Callable[..., Aggregator] = Aggregator,
        database: Callable[..., Database] = Database,
    ) -> None:
        self.seed = seed
        self.draw = Random(seed)
        self.plan = Plan.of_seed(seed, self.draw)
        self.loop = Loop(limit_s=600.0)
        self.outcome = Outcome(seed)
        self.database = database(Random(self.draw.random()), self._faults())
        self.weather = self._weather()
        self._make = aggregator
        self._link_draw = Random(self.draw.random())
        self._compute_draw = Random(self.draw.random())
        self._people = self.loop.process("people")
        self.servers = [Server[Aggregator](f"replica-{n}") for n in range(self.plan.replicas)]
        self.clients: dict[str, Client] = {}
        self.acknowledged: list[_Acknowledged] = []
        self.bodies: dict[tuple[str, str, bytes], Body] = {}  # by stream, source and digest
        self._decoded: dict[tuple[str, bytes], Snapshot] = {}
        self._posting = 0
        self._running: list[asyncio.Task[Any]] = []
        self._contested: set[bytes] = set()  # digests of bodies with the same numbers as another
        self._forked: set[tuple[str, str]] = set()  # kinds and sites
        self._sites: dict[tuple[int, str, int], Body] = {}  # of the service: what they go on from
        self._attempts: dict[
            tuple[int, str, bytes], list[Body]
        ] = {}  # states that posts of rows made

    # ------------------------------------------------------------------------------ the course

    def run(self) -> Outcome:
        """Run to the end.

        Raises:
            ViolationError: what must hold does not.
            Exception: whatever ended it.
        """
        with _scaled(self.plan), _quiet():
            self.loop.run(self._course())
        self.outcome.virtual_s = self.loop.time()
        self.outcome.commits = self.database.commits
        return self.outcome

    async def _course(self) -> None:
        self.note("world", f"{self.plan}")
        for server in self.servers:
            await self._boot(server)
        for name in self.plan.kinds:
            await self._create(name)
        tasks = [self._people.start(self._trouble(), "trouble")]
        tasks += [
            self._people.start(self._gateway(KINDS[name], f"gw-{n}", seen), f"gw-{n}")
            for name in self.plan.kinds
            for n, seen in enumerate(self._sensors(KINDS[name]))
        ]
        await _all(tasks)
        await self._calm()
        await self._settle()
        await self._finish()

    def _sensors(self, kind: Kind) -> list[list[Observation]]:
        """What reaches each gateway: every observation at least one, often several of them."""
        reached: list[list[Observation]] = [[] for _ in range(self.plan.gateways)]
        for number in range(self.plan.observations):
            now = START + int(number * self.plan.duration_s * _TICKS_PER_S / self.plan.observations)
            seen = kind.observe(self.draw, number, now)
            for gateway in self.draw.sample(reached, self.draw.randint(1, len(reached))):
                gateway.append(seen)
        return reached

    async def _gateway(self, kind: Kind, source: str, reached: list[Observation]) -> None:
        """Post deltas of what came in, several at a time."""
        link = Link(self.loop, self._link_draw, self.weather)
        first, begin = 0, 0
        sends_rows = kind.sited and Random(f"{self.seed} {source}").random() < 0.4
        posting: list[asyncio.Task[None]] = []
        pauses = 2 * self.plan.duration_s * self.plan.batch / (2 * max(1, len(reached)))
        while begin < len(reached):
            seen = reached[begin : begin + self.draw.randint(1, self.plan.batch)]
            begin += len(seen)
            await asyncio.sleep(self.draw.random() * pauses)
            bodies: list[Body | Rows]
            if sends_rows:
                bodies = [kind.rows(source, seen, first)]
                if self.draw.random() < 0.05:  # it gives these numbers twice
                    others = [each._replace(value=each.value + 1) for each in seen]
                    bodies.append(kind.rows(source, others, first))
                    self._contested |= {body.digest for body in bodies}
            else:
                bodies = [self._body(kind, source, reached[:begin] if kind.sited else seen, first)]
            if kind.sited and self.draw.random() < 0.1:
                bodies.append(self._fork(kind, source, reached[:begin]))
            if kind.numbered and self.draw.random() < 0.05:  # it gives these numbers twice
                others = [each._replace(time=each.time - 1) for each in seen]
                bodies.append(self._body(kind, source, others, first))
                self._contested |= {body.digest for body in bodies}
            first += len(seen)
            posting += [self._people.start(self._post(link, kind, each), source) for each in bodies]
        await _all(posting)

    def _body(self, kind: Kind, source: str, seen: Sequence[Observation], first: int) -> Body:
        body = kind.body(source, seen, self.now, first)
        self.bodies[kind.name, source, body.digest] = body
        return body

    def _fork(self, kind: Kind, source: str, seen: Sequence[Observation]) -> Body:
        """Of the site of a gateway another history, which some gateway sends."""
        self._forked.add((kind.name, source))
        others = [each._replace(value=each.value + 1) for each in seen]
        body = replace(kind.body(source, others, self.now, 0), source=self._some_source())
        self.bodies[kind.name, body.source, body.digest] = body
        return body

    @property
    def now(self) -> int:
        """In the streams' time."""
        return START + int(self.loop.time() * _TICKS_PER_S)

    # --------------------------------------------------------------------------------- clients

    async def _post(self, link: Link, kind: Kind, body: Body | Rows) -> None:
        """Post until it is acknowledged, refused, or too much."""

        async def request(aggregator: Aggregator) -> tuple[Receipt, Body]:
            if isinstance(body, Rows):
                return await self._handle_rows(aggregator, kind, body)
            return await self._handle_post(aggregator, kind, body), body

        asked_s = self.loop.time()
        tag = body.digest.hex()[:6]
        for attempt in range(self.draw.choice((2, 6, 30, 30))):
            server = self.draw.choice(self.servers)
            try:
                receipt, taken = await link.ask(server, request, f"post {tag}")
            except _AGAIN as error:
                self.note(body.source, f"{kind.name} {tag} at {server.name}: {error!r}")
                await asyncio.sleep(self.draw.random() * 0.1 * (attempt + 1))
                continue
            except UnknownStreamError:
                await asyncio.sleep(self.draw.random() * 0.3)
                continue
            except RevokedSourceError:
                self.outcome.refused += 1
                return
            except IntervalConflictError as error:
                if body.digest not in self._contested:
                    raise ViolationError(f"{kind.name} {tag} was the first: {error}") from error
                self.outcome.refused += 1
                return
            except ConflictingSketchError as error:
                if isinstance(body, Rows) or (kind.name, body.site) not in self._forked:
                    raise ViolationError(f"{kind.name} {tag} was no fork: {error}") from error
                self.note(body.source, f"{kind.name} {tag} contradicts: {error}")
                self.outcome.refused += 1
                return
            self.note(body.source, f"{kind.name} {tag} acknowledged by {server.name}")
            self.outcome.acknowledged += 1
            stream_id = self._stream_of(receipt.token)
            given = _Acknowledged(taken, stream_id, asked_s, self.loop.time())
            self.acknowledged.append(given)
            if self.draw.random() < 0.4:
                await self._read_own_write(link, kind, given, receipt.token)
            return
        self.note(body.source, f"{kind.name} {tag} given up")
        self.outcome.given_up += 1

    async def _handle_post(self, aggregator: Aggregator, kind: Kind, body: Body) -> Receipt:
        """What the route does."""
        stream = await aggregator.find(kind.name)

        rows = stream.peek_post(body.content)
        read = lambda _: self._decode(stream, body)  # noqa: E731
        post = Post(stream.id, body.source, body.content, rows, body.interval, read=read)
        receipt = await aggregator.post({stream: [post]})
        self._check_queue(aggregator)
        self._durable(stream, [body])
        return receipt

    async def _handle_rows(
        self, aggregator: Aggregator, kind: Any, rows: Rows
    ) -> tuple[Receipt, Body]:
        """What the route does, and the state that the rows are in."""
        stream = await aggregator.find(kind.name)
        form = Form(stream.recipe, rows.source, None, len(rows.observations))
        batch = check(read_lines(rows.content, form), form)
        attempts = self._attempts.setdefault((stream.id, rows.source, rows.digest), [])

        async def post(site: Site) -> tuple[Receipt, Sketch | None]:
            new, sketch = await aggregator.compute(count, batch, site, rows.interval, rows.digest)
            key = stream.id, site.source, site.epoch
            body: Body = kind.after(self._sites.get(key), rows, site.epoch)
            assert new is not None
            if new.body != body.content:
                raise ViolationError(f"{rows.source} counts what the library counts otherwise")
            attempts.append(body)
            self.bodies[kind.name, body.source, body.digest] = body
            receipt = await aggregator.post({stream: [new]}, check=site.check)
            if receipt.duplicates == [True]:
                return receipt, None
            self._sites[key] = body
            return receipt, sketch

        receipt = await aggregator.sites.count(stream, rows.source, post)
        self._check_queue(aggregator)
        return receipt, self._durable(stream, attempts)

    def _durable(self, stream: Stream, bodies: Sequence[Body]) -> Body:
        """The one of these that was journaled last: what is acknowledged."""
        by_digest = {body.digest: body for body in bodies}
        for event in reversed(self.database.history):
            if event.kind != "row" or event.stream_id != stream.id:
                continue
            body = by_digest.get(event.digest)
            if body is not None and body.source == event.source:
                return body
        raise ViolationError(f"{bodies[-1].digest.hex()[:6]} is acknowledged and not durable")

    def _decode(self, stream: Stream, body: Body) -> Snapshot:
        key = stream.name, body.digest
        if key not in self._decoded:
            self._decoded[key] = stream.decode(body.content)
        return self._decoded[key]

    async def _read_own_write(
        self, link: Link, kind: Kind, given: _Acknowledged, token: str
    ) -> None:
        async def request(aggregator: Aggregator) -> None:
            await aggregator.reached(token, [kind.name])
            stream = aggregator.stream(kind.name)
            if stream.id != given.stream_id:
                raise StaleTokenError(kind.name)
            read = await aggregator.compute(stream.snapshot)
            self._check_holds(stream, read, [given], f"after token {token.rpartition(':')[2]}")
            self.outcome.tokens_checked += 1

        for _ in range(5):
            try:
                await link.ask(self.draw.choice(self.servers), request, "query")
                return
            except _AGAIN:
                await asyncio.sleep(0.1)
            except (StaleTokenError, UnknownStreamError):
                if not self._dropped_since(given):
                    raise ViolationError(f"token {token} is said to be stale") from None
                return

    # ---------------------------------------------------------------------------- what must hold

    def _check_holds(
        self, stream: Stream, read: Snapshot, given: Sequence[_Acknowledged], when: str
    ) -> None:
        """All of these that were not dropped since are in what was read."""

        def holds(bodies: Sequence[Body]) -> bool:
            parts = [self._decode(stream, body) for body in bodies]
            return stream.recipe.join([read, *parts]).digest == read.digest

        due = [each.body for each in given if not self._dropped_since(each)]
        if due and not holds(due):
            missing = [body for body in due if not holds([body])]
            names = ", ".join(f"{body.source}/{body.digest.hex()[:6]}" for body in missing)
            raise ViolationError(f"stream {stream.name}: {names} acknowledged, and missing {when}")

    def _dropped_since(self, given: _Acknowledged) -> bool:
        """Whether its source was revoked, or its stream deleted, since it was first posted."""
        return any(
            event.time_s >= given.asked_s
            and event.stream_id == given.stream_id
            and (
                event.kind == "stream deleted"
                or (event.kind == "source deleted" and event.source == given.body.source)
            )
            for event in self.database.history
        )

    def _stream_of(self, token: str) -> int:
        name, incarnation, _number = token.split(":")
        for event in self.database.history:
            created = event.kind == "stream created"
            if created and (event.source, event.digest) == (name, incarnation.encode()):
                return event.stream_id
        raise ViolationError(f"token {token} is of a stream that never was")

    def _check_queue(self, aggregator: Aggregator) -> None:
        limits, queue = self.plan.limits, aggregator._committer
        largest = max(len(body.content) for body in self.bodies.values())
        # The last one taken may go beyond; here each is of one body, and small.
        few, many = queue._queued[False], queue._queued[True]
        most = -(-limits.queue_bytes // 2) + largest
        posts, size, bulk = few._posts.taken, few._bytes.taken, many._posts.taken
        if bulk or posts > limits.queue_posts or size >= most:
            raise ViolationError(f"{posts} posts of {size} bytes, {bulk} in bulk wait: {limits}")

    def _name_of(self, stream_id: int) -> str:
        return self._names[stream_id]

    @property
    def _names(self) -> dict[int, str]:
        return {
            event.stream_id: event.source
            for event in self.database.history
            if event.kind == "stream created"
        }

    def _journaled(self) -> dict[tuple[int, str], list[Event]]:
        """The rows that must be there in the end, by stream and source."""
        rows: dict[tuple[int, str], list[Event]] = defaultdict(list)
        refused: set[tuple[int, str]] = set()
        for event in self.database.history:
            source = event.stream_id, event.source
            if event.kind == "row":
                if source in refused:
                    raise ViolationError(f"row {event.seq} is of a refused source: {source}")
                self._check_history(event, rows)
                rows[source].append(event)
            elif event.kind == "source deleted":
                rows.pop(source, None)
            elif event.kind == "revoked":
                refused.add(source)
            elif event.kind == "reinstated":
                refused.discard(source)
            elif event.kind == "stream deleted":
                for key in [key for key in rows if key[0] == event.stream_id]:
                    del rows[key]
        return rows

    def _check_history(self, event: Event, rows: dict[tuple[int, str], list[Event]]) -> None:
        """Of a site nothing is taken that contradicts the longest of its histories there."""
        kind = KINDS[self._name_of(event.stream_id)]
        if not kind.sited:
            return
        body = self.bodies[kind.name, event.source, event.digest]
        others = [
            self.bodies[kind.name, each.source, each.digest]
            for (owner, _), events in rows.items()
            if owner == event.stream_id
            for each in events
        ]
        site = body.site, body.epoch
        of_site = [each for each in others if (each.site, each.epoch) == site]
        longest = max(of_site, key=kind.length, default=body)
        if kind.length(longest) == kind.length(body) and longest.content != body.content:
            raise ViolationError(
                f"two histories of {body.site} are of {kind.length(body)}, and both were taken"
            )

    def _expected(self) -> dict[str, dict[str, tuple[bytes, int]]]:
        """For every stream and source, and for the stream under "", bytes and number of posts."""
        expected: dict[str, dict[str, tuple[bytes, int]]] = {}
        journaled = self._journaled()
        for stream_id, row in sorted(self.database.state.streams.items()):
            kind = KINDS[row.name]
            sources = {
                source: [self.bodies[row.name, source, each.digest] for each in events]
                for (owner, source), events in sorted(journaled.items())
                if owner == stream_id
            }
            for source, bodies in sources.items():
                self._check_numbers(f"{row.name}/{source}", bodies)
            every = [
                each
                for (owner, _), some in journaled.items()
                for each in some
                if owner == stream_id
            ]
            every.sort(key=lambda each: each.seq)
            sources[""] = [self.bodies[row.name, each.source, each.digest] for each in every]
            expected[row.name] = {
                source: (kind.all_of(bodies).to_bytes(), len(bodies))
                for source, bodies in sources.items()
            }
        return expected

    def _check_numbers(self, source: str, bodies: Sequence[Body]) -> None:
        intervals = {
            (each.interval.first, each.interval.next, each.digest)
            for each in bodies
            if each.interval
        }
        end = 0
        for first, following, _digest in sorted(intervals):
            if first < end:
                raise ViolationError(f"{source}: numbers from {first} were taken twice")
            end = following

    def _found(self, aggregator: Aggregator) -> dict[str, dict[str, tuple[bytes, int]]]:
        found: dict[str, dict[str, tuple[bytes, int]]] = {}
        for stream in aggregator.streams():
            found[stream.name] = {
                each.source: (stream.snapshot([each.source]).to_bytes(), each.totals.posts)
                for each in stream.sources()
            }
            found[stream.name][""] = stream.snapshot().to_bytes(), stream.totals().posts
        return found

    def _check_equal(
        self, aggregator: Aggregator, expected: dict[str, dict[str, tuple[bytes, int]]], who: str
    ) -> None:
        found = self._found(aggregator)
        if found == expected:
            return
        lines = []
        for stream in sorted(found.keys() | expected.keys()):
            ours, theirs = found.get(stream, {}), expected.get(stream, {})
            for source in sorted(ours.keys() | theirs.keys()):
                mine, right = ours.get(source), theirs.get(source)
                if mine != right:
                    lines.append(f"{stream}/{source or '*'}: {_short(mine)} is not {_short(right)}")
        raise ViolationError(f"{who} is not what was journaled: " + "; ".join(lines))

    # --------------------------------------------------------------------------------- replicas

    async def _boot(self, server: Server[Aggregator]) -> None:
        """Start a replica, until it does."""
        began_s = self.loop.time()
        while True:
            process = self.loop.process(server.name)
            server.start_over(process)
            client = self.database.client()
            self.clients[server.name] = client
            answer: asyncio.Future[Any] = self.loop.create_future()
            process.start(self._start(client, answer), f"{server.name} starts")
            started = await answer
            if isinstance(started, Aggregator):
                break
            if isinstance(started, ReplayError):
                raise ViolationError(f"{server.name} cannot start: {started}") from started
            self.note(server.name, f"cannot start: {started!r}")
            process.kill()
            client.cut = True
            await asyncio.sleep(0.1)
        for stream in started.streams():
            given = [
                each
                for each in self.acknowledged
                if each.at_s < began_s and each.stream_id == stream.id
            ]
            self._check_holds(stream, stream.snapshot(), given, "after a restart")
        server.service = started
        self.note(server.name, "serves")

    async def _start(self, client: Client, answer: asyncio.Future[Any]) -> None:
        aggregator = self._make(
            client,
            self._compute,
            now_us=lambda: int(self.loop.time() * 1e6),
            limits=self.plan.limits,
        )
        try:
            await aggregator.start()
        except (StorageError, ReplayError) as error:
            answer.set_result(error)
        else:
            answer.set_result(aggregator)

    async def _compute(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Work of a thread: the result is of some moment while it ran."""
        draw = self._compute_draw
        if draw.random() < 0.7:
            await asyncio.sleep(draw.expovariate(500))
        result = function(*arguments, **named)
        if draw.random() < 0.3:
            await asyncio.sleep(draw.expovariate(500))
        return result

    def _kill(self, server: Server[Aggregator]) -> None:
        assert server.process is not None
        self.note(server.name, "dies")
        server.service = None
        server.process.kill()
        client = self.clients[server.name]
        client.cut = True
        self.database.disconnect(client)

    # ---------------------------------------------------------------------------------- trouble

    async def _trouble(self) -> None:
        """What goes wrong, one thing after another; several may last at a time."""
        lasting: list[asyncio.Task[None]] = []
        for _ in range(self.plan.troubles):
            await asyncio.sleep(self.draw.random() * 2 * self.plan.duration_s / self.plan.troubles)
            trouble = self.draw.choice(_TROUBLES)
            lasting.append(self._people.start(trouble(self), trouble.__name__.strip("_")))
        await _all(lasting)

    async def _restart(self) -> None:
        server = self.draw.choice(self.servers)
        if not server.serves:
            return
        self._kill(server)
        await asyncio.sleep(self.draw.random() * 0.5)
        self.outcome.restarts += 1
        await self._boot(server)

    async def _roll(self) -> None:
        """A replica is stopped as one should be, and started again."""
        server = self.draw.choice(self.servers)
        if not server.serves:
            return
        assert server.process is not None
        aggregator = server.service
        assert aggregator is not None
        server.service = None
        self.note(server.name, "stops")

        async def stop() -> None:
            while len(server.waiting) > 1:  # and this
                await asyncio.sleep(0.01)
            await aggregator.drain()
            await aggregator.close()

        server.take(stop(), "stop")
        deadline_s = self.loop.time() + 5.0
        while server.waiting and self.loop.time() < deadline_s:
            await asyncio.sleep(0.05)
        self._kill(server)
        self.outcome.restarts += 1
        await self._boot(server)

    async def _blackout(self) -> None:
        if not self.database.up:
            return
        self.note("database", "loses power")
        self.database.lose_power()
        await asyncio.sleep(self.draw.random() * 0.4)
        self.database.restore()
        self.note("database", "is back")

    async def _catastrophe(self) -> None:
        """Everything loses power at once."""
        fallen = [server for server in self.servers if server.serves]
        for server in fallen:
            self._kill(server)
        await self._blackout()
        self.outcome.restarts += len(fallen)
        for server in fallen:
            await self._boot(server)

    async def _fill_disk(self) -> None:
        self.note("database", "is full")
        self.database.full = True
        await asyncio.sleep(self.draw.random() * 0.5)
        self.database.full = False

    async def _fall_behind(self) -> None:
        """One replica does not hear of the others for a while."""
        with self._behind(self.draw.choice(self.servers)):
            await asyncio.sleep(self.draw.random())

    @contextmanager
    def _behind(self, server: Server[Aggregator]) -> Iterator[None]:
        """It cannot reach the database, or hears of what happened there when that is old."""
        client = self.clients[server.name]
        self.note(server.name, "falls behind")
        if self.draw.random() < 0.5:
            client.partitioned = True
        else:
            client.lag = 30.0
        yield
        client.partitioned = False
        client.lag = 1.0

    async def _slow_down(self) -> None:
        self.database.slowness = 20.0
        await asyncio.sleep(self.draw.random() * 0.5)
        self.database.slowness = 1.0

    async def _tear(self) -> None:
        """Damage a snapshot; often somebody starts from it."""
        sources = self.database.snapshot_sources()
        if not sources:
            return
        source = self.draw.choice(sources)
        if self.database.tear(source):
            self.note("database", f"snapshot of {source} is torn")
            if self.draw.random() < 0.7:
                await self._restart()

    async def _compact(self) -> None:
        """Somebody compacts out of turn."""
        await self._ask(self._request_compaction, "compact", 1)

    async def _compact_everywhere(self) -> None:
        """Everybody compacts, again and again, and one of them hears late of the others."""
        server = self.draw.choice(self.servers)
        self.note(server.name, "hears late; all compact")
        client = self.clients[server.name]
        client.lag = 30.0
        asked = []
        for _ in range(4):
            for each in self.servers:
                compaction = self._ask(self._request_compaction, "compact", 1, each)
                asked.append(self._people.start(compaction))
            await asyncio.sleep(self.draw.random() * 0.2)
        await _all(asked)
        client.lag = 1.0

    async def _request_compaction(self, aggregator: Aggregator) -> None:
        await aggregator.compact()
        self.outcome.compactions += 1

    async def _revoke(self) -> None:
        """Revoke a source, and mostly admit it again."""
        await self._revoke_source(self.draw.choice(self.plan.kinds), self._some_source())

    async def _revoke_at_once(self) -> None:
        """Revoke a source as soon as a post of it is durable, while a replica hears late of it."""
        server = self.draw.choice(self.servers)
        self.note(server.name, "hears late")
        client = self.clients[server.name]
        client.lag = 30.0
        seen = len(self.database.history)
        for _ in range(200):
            await asyncio.sleep(0.005)
            news = [event for event in self.database.history[seen:] if event.kind == "row"]
            if news:
                await self._revoke_source(self._name_of(news[0].stream_id), news[0].source)
                break
        client.lag = 1.0

    async def _revoke_source(self, name: str, source: str) -> None:
        async def revoke(aggregator: Aggregator) -> None:
            await aggregator.catalog.revoke(name, source)

        async def reinstate(aggregator: Aggregator) -> None:
            await aggregator.catalog.reinstate(name, source)

        began_s = self.loop.time()
        if await self._ask(revoke, f"revoke {name}/{source}", 8):
            done = any(
                began_s <= event.time_s
                and self._name_of(event.stream_id) == name
                and (
                    event.kind == "stream deleted"
                    or (event.kind == "source deleted" and event.source == source)
                )
                for event in self.database.history
            )
            if not done:
                raise ViolationError(f"{name}/{source} is said to be revoked, and is not")
        if self.draw.random() < 0.8:
            await asyncio.sleep(self.draw.random() * 0.5)
            await self._ask(reinstate, f"reinstate {name}/{source}", 8)

    async def _remake(self) -> None:
        """Delete a stream and make it anew, maybe before some replica hears of it."""
        name = self.draw.choice(self.plan.kinds)

        async def delete(aggregator: Aggregator) -> None:
            await aggregator.catalog.delete(name)

        with self._behind(self.draw.choice(self.servers)):
            await self._ask(delete, f"delete {name}", 8)
            if self.draw.random() < 0.5:
                await asyncio.sleep(self.draw.random() * 0.2)
            await self._create(name)
            await asyncio.sleep(self.draw.random() * 0.5)

    async def _create(self, name: str) -> None:
        async def create(aggregator: Aggregator) -> None:
            await aggregator.catalog.create(name, KINDS[name].recipe.to_dict())

        await self._ask(create, f"create {name}", 100)

    def _some_source(self) -> str:
        return f"gw-{self.draw.randrange(self.plan.gateways)}"

    async def _ask(
        self,
        request: Callable[[Aggregator], Awaitable[None]],
        name: str,
        attempts: int,
        at: Server[Aggregator] | None = None,
    ) -> bool:
        """An operator's request, until it is answered; whether it was done."""
        link = Link(self.loop, self._link_draw, self.weather)
        for _ in range(attempts):
            server = at or self.draw.choice(self.servers)
            try:
                await link.ask(server, request, name)
            except _AGAIN as error:
                self.note("operator", f"{name} at {server.name}: {error!r}")
                await asyncio.sleep(self.draw.random() * 0.3)
            except (UnknownStreamError, UnknownSourceError) as error:
                self.note("operator", f"{name} at {server.name}: {error!r}")
                return False
            else:
                self.note("operator", f"{name} at {server.name}: done")
                return True
        return False

    def _faults(self) -> Faults:
        draw = self.draw
        calm = draw.random() < 0.3
        return Faults(
            statement=0.0 if calm else draw.choice((0.0, 0.002, 0.01)),
            commit_before=0.0 if calm else draw.choice((0.0, 0.02, 0.1)),
            commit_after=0.0 if calm else draw.choice((0.0, 0.02, 0.1)),
            latency_s=draw.choice((0.0005, 0.002, 0.01)),
            sync_s=draw.choice((0.002, 0.02)),
        )

    def _weather(self) -> Weather:
        draw = self.draw
        return Weather(
            loss=draw.choice((0.0, 0.05, 0.3)),
            repeat=draw.choice((0.0, 0.1, 0.3)),
            straggle=draw.choice((0.0, 0.1)),
            delay_s=draw.choice((0.001, 0.01, 0.05)),
            patience_s=draw.choice((0.2, 1.0)),
        )

    # ------------------------------------------------------------------------------------ the end

    async def _calm(self) -> None:
        """Nothing fails any more."""
        self.note("world", "calm")
        self.database.faults = Faults(latency_s=0.0005, sync_s=0.001, awaited=0.1)
        self.weather.loss = self.weather.repeat = self.weather.straggle = 0.0
        await asyncio.sleep(LONGEST_S + 0.1)  # what is still under way arrives
        deadline_s = self.loop.time() + _SETTLING_S
        while waiting := [name for server in self.servers for name in server.waiting]:
            if self.loop.time() > deadline_s:
                raise ViolationError(f"requests without an end: {', '.join(waiting)}")
            await asyncio.sleep(0.2)

    async def _settle(self) -> None:
        """Every replica comes to what was journaled."""
        expected = self._expected()
        deadline_s = self.loop.time() + _SETTLING_S
        for server in self.servers:
            assert server.service is not None
            while self._found(server.service) != expected and self.loop.time() < deadline_s:
                await asyncio.sleep(1.0)
            self._check_equal(server.service, expected, server.name)
            if own := server.service._follower._own:
                raise ViolationError(f"{server.name} keeps rows {sorted(own)}, which it has taken")
        self.note("world", "settled")

    async def _finish(self) -> None:
        """End everything, and start from the database alone."""
        expected = self._expected()
        if self.draw.random() < 0.5:
            last = self.draw.choice(self.servers).service
            assert last is not None
            await self._ask_directly(last.compact)
        for server in self.servers:
            assert server.service is not None
            await self._ask_directly(server.service.drain)
            await self._ask_directly(server.service.close)
        cold = Server[Aggregator]("cold")
        await self._boot(cold)
        assert cold.service is not None
        self._check_equal(cold.service, expected, "a cold start")
        self._kill(cold)
        if self.draw.random() < 0.5:
            newest = self.draw.random() < 0.7
            for source in self.database.snapshot_sources():
                self.database.tear(source, newest)
            await self._boot(cold)
            assert cold.service is not None
            self._check_equal(cold.service, expected, "a start from torn snapshots")

    async def _ask_directly(self, function: Callable[[], Awaitable[Any]]) -> None:
        async def call() -> None:
            await function()

        await self._people.start(call())

    def note(self, who: str, what: str) -> None:
        """A line of the trace."""
        self.outcome.trace.append(f"{self.loop.time():9.4f} {who:<10} {what}")


_TROUBLES: Sequence[Callable[[World], Any]] = (
    World._restart,
    World._roll,
    World._catastrophe,
    World._blackout,
    World._fill_disk,
    World._fall_behind,
    World._slow_down,
    World._tear,
    World._tear,
    World._compact,
    World._compact_everywhere,
    World._compact_everywhere,
    World._revoke,
    World._revoke_at_once,
    World._revoke_at_once,
    World._remake,
    World._remake,
)


def run(seed: int, **parts: Any) -> Outcome:
    """One run."""
    return World(seed, **parts).run()


async def _all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait for all of them; the first error ends the wait."""
    await asyncio.gather(*tasks)


@contextmanager
def _scaled(plan: Plan) -> Iterator[None]:
    """Transactions and reads of a few rows, as if there were very many; nothing follows from
    addresses in memory or from the system's randomness."""
    with (
        mock.patch.object(follower, "_CHUNK_BYTES", plan.chunk_bytes),
        mock.patch.object(committer, "_TRANSACTION_BYTES", plan.chunk_bytes),
        mock.patch.object(compactor, "_SOURCES_AT_ONCE", 1 + plan.chunk_bytes // 300),
        mock.patch.object(service, "_FOLD_PAUSE_S", plan.fold_pause_s),
        mock.patch.object(catalog, "secrets", SimpleNamespace(token_hex=_words(plan.duration_s))),
        mock.patch.object(sites, "secrets", SimpleNamespace(randbits=_bits(plan.duration_s))),
    ):
        yield


def _words(seed: float) -> Callable[[int], str]:
    draw = Random(seed)
    return lambda size: draw.randbytes(size).hex()


def _bits(seed: float) -> Callable[[int], int]:
    return Random(-seed).getrandbits


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings of the service are what is expected here."""
    logger = logging.getLogger("api")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _short(held: tuple[bytes, int] | None) -> str:
    if held is None:
        return "nothing"
    content, posts = held
    return f"{posts} posts, {len(content)} bytes {hashlib.sha256(content).hexdigest()[:6]}"
