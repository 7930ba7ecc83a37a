"""SQLite and PostgreSQL: the statements, by SQLAlchemy.

The transactions are in ``threads``, and the settings of connections in ``engines``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from api.journal import engines, instance, tables, versions
from api.journal.log import (
    Head,
    Interval,
    Post,
    PostKey,
    Revocation,
    SnapshotRow,
    SourceKey,
    StorageError,
    StreamRow,
    Totals,
)
from api.journal.storage import Reader, Step, Writer
from api.journal.threads import Opened, Threads, asked
from api.journal.urls import driver_url

__all__ = ["SqlStorage"]

T = TypeVar("T")

_OPEN_S = 3600.0  # seconds: creating the tables, or reading every post of the release before

_KEYS_ASKED = 256  # in one statement
_SIZES_READ = 1024  # in one statement
# Members next to a stream's configuration in its JSON, only if set. A release that does not know
# them rejects the stream, because it would compute other ids.
_BIND_KEYS, _INGEST, _VIEW = "bind_keys", "ingest", "view"
_ABOUT, _FROM_LEVEL, _STANDING = "about", "from_level", "standing"

_SNAPSHOT_BYTES = 8 * 1024 * 1024  # read at once, unless one source has more


class SqlStorage:
    """A database by its URL: ``sqlite:///PATH`` or ``postgresql://...``. Use :meth:`open`."""

    def __init__(self, url: str) -> None:
        try:
            parsed = driver_url(url)
        except ValueError as error:
            raise StorageError(str(error)) from None
        self._opened = Opened(parsed)
        self._threads = Threads(parsed, self._opened.check_file)
        self._writer = _FileWriter if parsed.get_backend_name() == "sqlite" else _Writer

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and create the tables or update the previous release's tables.

        Raises:
            StorageError: the database is out of reach, does not guarantee the required properties,
                or its tables have another version.
        """
        storage = cls(url)
        try:
            async with asyncio.timeout(_OPEN_S):
                await storage._prepare()
        except TimeoutError:
            await storage.close()
            raise StorageError(f"the tables were not ready after {_OPEN_S:g} s") from None
        except BaseException:
            await storage.close()
            raise
        return storage

    async def close(self) -> None:
        await self._threads.close()

    async def read(self, statements: Callable[[Reader], T]) -> T:
        return await self._threads.read(lambda c: statements(_Reader(c, self._opened)))

    @asynccontextmanager
    async def steps(self) -> AsyncIterator[Step]:
        async with self._threads.steps() as on_thread:

            async def step(statements: Callable[[Reader], T]) -> T:
                return await on_thread(lambda c: statements(_Reader(c, self._opened)))

            yield step

    async def write(
        self, statements: Callable[[Writer], T], before: Callable[[], None] | None = None
    ) -> T:
        return await self._threads.write(
            lambda c: statements(self._writer(c, self._opened)), before
        )

    async def _prepare(self) -> None:
        self._opened.keep_to(await self._threads.write(_prepare_tables, patience_s=_OPEN_S))


def _prepare_tables(connection: sa.Connection) -> str:
    """Return the database's identity, once its tables are ready."""
    if connection.dialect.name == "postgresql":
        engines.require_durability(connection)
    versions.prepare(connection)
    return instance.prepare(connection)


# -------------------------------------------------------------------------------------- statements

_head = sa.select(
    tables.head.c.last,
    tables.head.c.deleted,
    tables.head.c.generation,
    tables.head.c.catalog,
    sa.select(instance.table.c.identity).scalar_subquery(),
)
_streams = sa.select(tables.streams).order_by(tables.streams.c.id)
_revocations = sa.select(tables.revocations).order_by(
    tables.revocations.c.stream_id, tables.revocations.c.source
)
_j = tables.journal.c
_post_columns = (_j.stream_id, _j.source, _j.body, _j.rows, _j.seq, _j.received_us)
_in_range = sa.and_(_j.seq > sa.bindparam("after"), _j.seq <= sa.bindparam("upto"))
_sizes = (
    sa.select(_j.seq, sa.func.length(_j.body)).where(_in_range).order_by(_j.seq).limit(_SIZES_READ)
)
_rows = sa.select(*_post_columns).where(_in_range).order_by(_j.seq)
_known = sa.select(_j.stream_id, _j.source, _j.digest).where(
    sa.tuple_(_j.stream_id, _j.source, _j.digest).in_(sa.bindparam("keys", expanding=True))
)
_set_head = tables.head.update().values({name: sa.bindparam(name) for name in Head.__slots__})

# The same as text, for SQLite's driver.
_KEY_NAMES = ("stream_id", "source", "digest")


def _text(statement: sa.ClauseElement) -> str:
    return str(statement.compile(dialect=sqlite.dialect(paramstyle="named")))


_HEAD_TEXT = _text(_head)
_SET_HEAD_TEXT = _text(_set_head)
_IS_KNOWN_TEXT = _text(
    sa.select(_j.seq).where(*(_j[name] == sa.bindparam(name) for name in _KEY_NAMES))
)
_INSERT_ROW_TEXT = _text(tables.journal.insert())

_journaled_sources = (
    sa.select(_j.stream_id, _j.source)
    .where(_j.seq <= sa.bindparam("upto"))
    .distinct()
    .order_by(_j.stream_id, _j.source)
)

_s = tables.snapshots.c
_snapshots = sa.select(tables.snapshots).order_by(_s.stream_id, _s.source, _s.generation.desc())
_snapshot_sizes = (
    sa.select(_s.stream_id, _s.source, sa.func.sum(sa.func.length(_s.body)))
    .where(_s.upto > sa.bindparam("after"))
    .group_by(_s.stream_id, _s.source)
    .order_by(_s.stream_id, _s.source)
)
_snapshots_between = _snapshots.where(
    _s.upto > sa.bindparam("after"),
    sa.tuple_(_s.stream_id, _s.source)
    >= sa.tuple_(sa.bindparam("from_id", type_=_s.stream_id.type), sa.bindparam("from_source")),
    sa.tuple_(_s.stream_id, _s.source)
    <= sa.tuple_(sa.bindparam("to_id", type_=_s.stream_id.type), sa.bindparam("to_source")),
)


def _of(table: sa.Table, source: SourceKey) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.stream_id == source[0], table.c.source == source[1])


class _Reader:
    def __init__(self, connection: sa.Connection, opened: Opened) -> None:
        self._connection = connection
        self._opened = opened

    def head(self) -> Head:
        return self._read_head(_head)

    def streams(self, ids: Collection[int] | None = None) -> list[StreamRow]:
        query = _streams if ids is None else _streams.where(tables.streams.c.id.in_(ids))
        return [_stream(row) for row in self._all(query)]

    def stream_named(self, name: str) -> StreamRow | None:
        found = self._all(_streams.where(tables.streams.c.name == name))
        return _stream(found[0]) if found else None

    def revocations(self, ids: Collection[int] | None = None) -> list[Revocation]:
        of_streams = tables.revocations.c.stream_id
        query = _revocations if ids is None else _revocations.where(of_streams.in_(ids))
        return [Revocation(*row) for row in self._all(query)]

    def rows(self, after: int, upto: int, limit_bytes: int) -> list[Post]:
        last, size, more = after, 0, True
        while size < limit_bytes and more:
            page = self._all(_sizes, {"after": last, "upto": upto})
            more = len(page) == _SIZES_READ
            for seq, length in page:
                last, size = seq, size + length
                if size >= limit_bytes:
                    break
        if last == after:
            return []
        return [
            Post(stream_id, source, body, rows, seq=seq, received_us=received_us)
            for stream_id, source, body, rows, seq, received_us in self._all(
                _rows, {"after": after, "upto": last}
            )
        ]

    def journaled_sources(self, upto: int) -> list[SourceKey]:
        return [(row[0], row[1]) for row in self._all(_journaled_sources, {"upto": upto})]

    def snapshots(self, after: int) -> Iterator[list[SnapshotRow]]:
        sizes = self._all(_snapshot_sizes, {"after": after})
        for first, last in _portions(sizes):
            found = self._all(
                _snapshots_between,
                {
                    "after": after,
                    "from_id": first[0],
                    "from_source": first[1],
                    "to_id": last[0],
                    "to_source": last[1],
                },
            )
            yield [_snapshot(row) for row in found]

    def select(
        self, query: sa.Select[*tuple[Any, ...]], values: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        return self._all(query, values)

    def _read_head(self, query: sa.Select[*tuple[Any, ...]]) -> Head:
        return self._only_head(self._all(query))

    def _only_head(self, found: Sequence[Any]) -> Head:
        if not found:
            raise StorageError("the head of the journal is missing")
        *fields, identity = found[0]
        self._opened.check(identity)
        return Head(*fields)

    def _all(
        self, query: sa.Select[*tuple[Any, ...]], values: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        return self._connection.execute(query, values).all()


def _portions(sizes: Sequence[Any]) -> Iterator[tuple[SourceKey, SourceKey]]:
    """Yield the first and last source in each portion that is read together."""
    first: SourceKey | None = None
    total = 0
    for number, (stream_id, source, size) in enumerate(sizes):
        first = first or (stream_id, source)
        total += int(size)  # PostgreSQL sums to a decimal
        if total >= _SNAPSHOT_BYTES or number == len(sizes) - 1:
            yield first, (stream_id, source)
            first, total = None, 0


def _stream(row: Any) -> StreamRow:
    recipe = json.loads(row.recipe)
    bind_keys, ingest = recipe.pop(_BIND_KEYS, False), recipe.pop(_INGEST, None)
    view, about = recipe.pop(_VIEW, None), recipe.pop(_ABOUT, {})
    from_level, standing = recipe.pop(_FROM_LEVEL, 0), recipe.pop(_STANDING, {})
    return StreamRow(
        row.id,
        row.name,
        row.incarnation,
        recipe,
        row.created_us,
        row.max_clock_skew_s,
        row.id_key,
        bind_keys,
        ingest,
        view,
        about,
        from_level,
        standing,
    )


def _recipe(stream: StreamRow) -> str:
    beside: dict[str, Any] = {_BIND_KEYS: True} if stream.bind_keys else {}
    if stream.ingest is not None:
        beside[_INGEST] = stream.ingest
    if stream.view is not None:
        beside[_VIEW] = stream.view
    if stream.about:
        beside[_ABOUT] = dict(stream.about)
    if stream.from_level:
        beside[_FROM_LEVEL] = stream.from_level
    if stream.standing:
        beside[_STANDING] = dict(stream.standing)
    return json.dumps(dict(stream.recipe) | beside, sort_keys=True)


def _snapshot(row: Any) -> SnapshotRow:
    return SnapshotRow(
        row.stream_id,
        row.source,
        row.generation,
        row.upto,
        row.digest,
        row.body,
        Totals(row.posts, row.posted_bytes, row.rows, row.last_received_us),
    )


class _Writer(_Reader):
    def lock_head(self) -> Head:
        return self._read_head(_head.with_for_update())

    def set_head(self, head: Head) -> None:
        self._do(_set_head, _fields(head))

    def prove(self, body: bytes) -> None:
        self._do(instance.table.update().values(proof=body))

    def known(self, keys: Collection[PostKey]) -> set[PostKey]:
        asked, known = list(keys), set[PostKey]()
        for begin in range(0, len(asked), _KEYS_ASKED):
            some = asked[begin : begin + _KEYS_ASKED]
            known.update((row[0], row[1], row[2]) for row in self._all(_known, {"keys": some}))
        return known

    def overlapping(
        self, source: SourceKey, interval: Interval, limit: int
    ) -> list[tuple[Interval, bytes]]:
        columns, of_source = tables.ledger.c, _of(tables.ledger, source)
        # Intervals are disjoint, so only the last earlier one may overlap. No long scan is needed.
        last_before = (
            sa.select(sa.func.max(columns.first))
            .where(of_source, columns.first <= interval.first)
            .scalar_subquery()
        )
        found = self._all(
            sa.select(columns.first, columns.next, columns.digest)
            .where(
                of_source,
                columns.first >= sa.func.coalesce(last_before, interval.first),
                columns.first < interval.next,
                columns.next > interval.first,
            )
            .order_by(columns.first)
            .limit(limit)
        )
        return [(Interval(row[0], row[1]), row[2]) for row in found]

    def insert_interval(self, post: Post) -> None:
        assert post.interval is not None
        self._do(
            tables.ledger.insert().values(
                stream_id=post.stream_id,
                source=post.source,
                first=post.interval.first,
                next=post.interval.next,
                digest=post.sent,
            )
        )

    def delete_interval(self, source: SourceKey, interval: Interval) -> None:
        columns = tables.ledger.c
        self._do(
            tables.ledger.delete().where(
                _of(tables.ledger, source),
                columns.first == interval.first,
                columns.next == interval.next,
            )
        )

    def insert_rows(self, posts: Sequence[Post]) -> None:
        self._do(tables.journal.insert(), [_row(post) for post in posts])

    def insert_stream(self, stream: StreamRow) -> StreamRow:
        result = self._do(
            tables.streams.insert().values(
                name=stream.name,
                incarnation=stream.incarnation,
                recipe=_recipe(stream),
                created_us=stream.created_us,
                max_clock_skew_s=stream.max_clock_skew_s,
                id_key=stream.id_key,
            )
        )
        assert result.inserted_primary_key is not None
        return replace(stream, id=result.inserted_primary_key[0])

    def replace_stream(self, stream: StreamRow) -> None:
        self._do(
            tables.streams.update()
            .where(tables.streams.c.id == stream.id)
            .values(recipe=_recipe(stream))
        )

    def delete_stream(self, stream_id: int) -> None:
        for table in (tables.journal, tables.snapshots, tables.ledger, tables.revocations):
            self._do(table.delete().where(table.c.stream_id == stream_id))
        self._do(tables.streams.delete().where(tables.streams.c.id == stream_id))

    def delete_source(self, source: SourceKey) -> None:
        for table in (tables.journal, tables.snapshots, tables.ledger):
            self._do(table.delete().where(_of(table, source)))

    def put_revocation(self, revocation: Revocation) -> None:
        source = revocation.stream_id, revocation.source
        self._do(tables.revocations.delete().where(_of(tables.revocations, source)))
        self._do(tables.revocations.insert().values(_fields(revocation)))

    def newest_snapshot(self, source: SourceKey) -> SnapshotRow | None:
        found = self._all(_snapshots.where(_of(tables.snapshots, source)).limit(1))
        return _snapshot(found[0]) if found else None

    def insert_snapshot(self, snapshot: SnapshotRow) -> None:
        fields = _fields(snapshot)
        fields.update(_fields(fields.pop("totals")))
        self._do(tables.snapshots.insert().values(fields))

    def delete_snapshots(self, source: SourceKey, generations: tuple[int, int]) -> None:
        low, high = generations
        self._do(
            tables.snapshots.delete().where(
                _of(tables.snapshots, source), _s.generation >= low, _s.generation < high
            )
        )

    def delete_rows(self, source: SourceKey, upto: int) -> int:
        result = self._do(
            tables.journal.delete().where(_of(tables.journal, source), _j.seq <= upto)
        )
        return result.rowcount

    def execute(self, statement: sa.UpdateBase) -> int:
        return self._do(statement).rowcount

    def _do(self, statement: Any, values: Any = None) -> sa.CursorResult[Any]:
        return self._connection.execute(statement, values)


class _FileWriter(_Writer):
    """A writer over SQLite, on a thread. The statements that every commit of posts runs go directly
    to the driver. SQLAlchemy takes several times as long for them as SQLite.
    """

    def __init__(self, connection: sa.Connection, opened: Opened) -> None:
        super().__init__(connection, opened)
        self._driver: Any = connection.connection.driver_connection

    def lock_head(self) -> Head:
        asked()
        return self._only_head(self._driver.execute(_HEAD_TEXT).fetchall())

    def set_head(self, head: Head) -> None:
        asked()
        self._driver.execute(_SET_HEAD_TEXT, _fields(head))

    def known(self, keys: Collection[PostKey]) -> set[PostKey]:
        asked()
        execute = self._driver.execute
        return {
            key
            for key in keys
            if execute(_IS_KNOWN_TEXT, dict(zip(_KEY_NAMES, key, strict=True))).fetchone()
        }

    def insert_rows(self, posts: Sequence[Post]) -> None:
        asked()
        self._driver.executemany(_INSERT_ROW_TEXT, [_row(post) for post in posts])


def _row(post: Post) -> dict[str, Any]:
    return {
        "seq": post.seq,
        "stream_id": post.stream_id,
        "source": post.source,
        "digest": post.digest,
        "body": post.body,
        "rows": post.rows,
        "received_us": post.received_us,
    }


def _fields(row: Any) -> dict[str, Any]:
    """Return a frozen row's attributes, by name. Unlike ``asdict`` this copies nothing."""
    return {name: getattr(row, name) for name in row.__slots__}
