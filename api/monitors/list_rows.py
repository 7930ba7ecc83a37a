"""Rows for top-k lists and their sites' reports, and the transactions that change them.

The last request is a row, and so is each site's report. So any process accepts a post, any process
opens the next round, and a restart loses nothing. A process writes another request by
compare-and-set on the list's version, so no two requests share a number.

A report needs no such care. Each row is one complete report from the site. If the older of two
simultaneous reports stays, the next response shows that to the site, and it reports again. Reports
from an epoch or round other than the present are void, and are overwritten.

An *epoch* is its start time in microseconds since 1970. As with monitors, none is used twice, even
after a list was redefined or a backup was restored. No round has the same time as a round in an
earlier epoch, so counts under another decay are never mistaken for its counts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from api.errors import TooManyListsError
from api.journal.monitor_tables import lists as _lists
from api.journal.monitor_tables import words as _words
from api.journal.storage import Reader, Writer
from api.monitors.defining import Definitions, named
from decaysketch.topk import Heard, Post

__all__ = [
    "LISTS",
    "ListRow",
    "Said",
    "find",
    "heard",
    "kept",
    "put_word",
    "said",
    "some",
    "step",
    "versions",
    "word",
]

_l, _w = _lists.c, _words.c

LISTS = Definitions(
    _lists, TooManyListsError, {"asked": None, "opened_us": 0, "found": None}, _w.list_id
)

Number = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ListRow:
    """A list, as it was defined, and its round position.

    Attributes:
        spec: ``TopKSpec.to_dict()``.
        epoch: the epoch for its requests.
        version: changes whenever a later attribute is written.
        asked: ``Ask.to_dict()`` for the last request. None: nothing in this epoch.
        last_as_of: time of the last round, in any epoch. None: there was none.
        opened_us: when that was opened.
        found: ``TopK.to_dict()`` for the last list. None: there is none in this epoch.
    """

    id: int
    stream_id: int
    name: str
    spec: Mapping[str, Any]
    epoch: int
    version: int
    asked: Mapping[str, Any] | None
    last_as_of: int | None
    opened_us: int
    found: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Said:
    """The hub's record for a site, without its entries."""

    epoch: int
    as_of: int
    serial: int  # of the ask that it follows
    number: Number  # (inc, seq)


def _row(found: Any) -> ListRow:
    asked, last = found.asked, found.found
    return ListRow(
        found.id,
        found.stream_id,
        found.name,
        json.loads(found.spec),
        found.epoch,
        found.version,
        None if asked is None else json.loads(asked),
        found.last_as_of,
        found.opened_us,
        None if last is None else json.loads(last),
    )


def versions(rx: Reader) -> dict[int, int]:
    """Return every list's version, by id."""
    return {row.id: row.version for row in rx.select(sa.select(_l.id, _l.version))}


def some(rx: Reader, ids: Collection[int]) -> list[ListRow]:
    """Return the lists with these ids."""
    return [_row(each) for each in rx.select(sa.select(_lists).where(_l.id.in_(ids)))]


def find(rx: Reader, stream_id: int, name: str) -> ListRow | None:
    """Return a list without its last result, which may be long. Posts do not need it."""
    mine = named(_lists, stream_id, name)
    columns = (each for each in _l if each is not _l.found)
    found = rx.select(sa.select(*columns, sa.null().label("found")).where(mine))
    return _row(found[0]) if found else None


def said(rx: Reader, list_id: int) -> dict[str, Said]:
    """Return the last report from each site in a list, in any round, by source."""
    columns = (_w.source, _w.epoch, _w.as_of, _w.serial, _w.inc, _w.seq)
    rows = rx.select(sa.select(*columns).where(_w.list_id == list_id))
    return {row.source: Said(row.epoch, row.as_of, row.serial, (row.inc, row.seq)) for row in rows}


def heard(rx: Reader, row: ListRow) -> list[tuple[str, int]]:
    """Return the sites' reports in the present round: their posts as JSON, and the responses."""
    now = sa.and_(_w.list_id == row.id, _w.epoch == row.epoch, _w.as_of == row.last_as_of)
    found = rx.select(sa.select(_w.post, _w.told).where(now))
    return [(each.post, each.told) for each in found]


def word(rx: Reader, row: ListRow, source: str) -> tuple[str, int] | None:
    """Return the same for one site, or None."""
    its = sa.and_(_w.list_id == row.id, _w.source == source)
    now = sa.and_(its, _w.epoch == row.epoch, _w.as_of == row.last_as_of)
    found = rx.select(sa.select(_w.post, _w.told).where(now))
    return (found[0].post, found[0].told) if found else None


def put_word(tx: Writer, row: ListRow, heard: Heard, serial: int, most: int | None) -> int | None:
    """Write a site's report, over its earlier one.

    Args:
        row: as it was when the report was accepted. If the list is now in another epoch, or is
            deleted, nothing is written.
        serial: the serial of the request that it follows.
        most: limit on the site count. None: no limit.

    Returns:
        None, or the site count if this site would exceed the limit. Then nothing was written.
    """
    post = heard.post
    values = {
        "epoch": row.epoch, "as_of": post.as_of, "inc": post.inc, "seq": post.seq,
        "serial": serial, "told": heard.told, "post": post.to_json(),
    }  # fmt: skip
    tx.lock_head()
    same = sa.and_(_l.id == row.id, _l.epoch == row.epoch)
    if not tx.select(sa.select(_l.id).where(same)):
        return None
    its = sa.and_(_w.list_id == row.id, _w.source == post.site)
    if tx.execute(_words.update().where(its).values(**values)):
        return None
    if most is not None:
        count = sa.select(sa.func.count()).select_from(_words).where(_w.list_id == row.id)
        (there,) = (tx.select(count))[0]
        if there >= most:
            return int(there)
    tx.execute(_words.insert().values(list_id=row.id, source=post.site, **values))
    return None


def step(
    tx: Writer, row: ListRow, *, asked: Mapping[str, Any] | None, opened_us: int, found: Any
) -> bool:
    """Write another request or another list. Return False if another process did so since it was
    read.
    """
    tx.lock_head()
    it = sa.and_(_l.id == row.id, _l.version == row.version)
    as_of = row.last_as_of if asked is None else asked["as_of"]
    values = {
        "asked": None if asked is None else json.dumps(asked),
        "last_as_of": as_of,
        "opened_us": opened_us,
        "found": None if found is None else json.dumps(found),
        "version": row.version + 1,
    }
    return bool(tx.execute(_lists.update().where(it).values(**values)))


def kept(post: str, told: int) -> Heard:
    """Return a report row's content. O(its entries)."""
    return Heard(Post.from_json(post), told)
