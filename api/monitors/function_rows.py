"""Rows for functions across sources, and the transactions that change them.

A row contains the definition and its hub's complete state as JSON. So any process accepts an
exchange, and a restart loses nothing. A process writes a state by compare-and-set on the version,
before it responds.

An *epoch* is its start time in microseconds since 1970. As with monitors, none is used twice, even
after a function was redefined or a backup was restored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from api.errors import TooManyFunctionsError
from api.journal.monitor_tables import functions as _functions
from api.journal.storage import Reader, Writer
from api.monitors import defining
from api.monitors.defining import begin, check_room, named, renewed

__all__ = ["FunctionRow", "all_rows", "define", "find", "of_stream", "remove", "step"]

_f = _functions.c


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function, as it was defined, and its hub.

    Attributes:
        spec: ``FunctionSpec.to_dict()``.
        epoch: of the definition.
        version: changes whenever the state is written.
        state: the hub's state as JSON text. None: no source was heard in this epoch.
    """

    id: int
    stream_id: int
    name: str
    spec: Mapping[str, Any]
    epoch: int
    version: int
    state: str | None


def _row(found: Any) -> FunctionRow:
    return FunctionRow(
        found.id, found.stream_id, found.name, json.loads(found.spec), found.epoch, found.version,
        found.state,
    )  # fmt: skip


async def all_rows(rx: Reader) -> list[FunctionRow]:
    """Return every function."""
    return [_row(each) for each in await rx.select(sa.select(_functions))]


async def of_stream(rx: Reader, stream_id: int) -> list[FunctionRow]:
    """Return a stream's functions, by name."""
    mine = sa.select(_functions).where(_f.stream_id == stream_id).order_by(_f.name)
    return [_row(each) for each in await rx.select(mine)]


async def find(rx: Reader, stream_id: int, name: str) -> FunctionRow | None:
    """Return a function, or None."""
    mine = named(_functions, stream_id, name)
    found = await rx.select(sa.select(_functions).where(mine))
    return _row(found[0]) if found else None


async def step(tx: Writer, row: FunctionRow, state: str) -> bool:
    """Write another state. Return False if another process did so since it was read."""
    await tx.lock_head()
    it = sa.and_(_f.id == row.id, _f.version == row.version)
    values = {"state": state, "version": row.version + 1}
    return bool(await tx.execute(_functions.update().where(it).values(**values)))


async def define(
    tx: Writer,
    stream: tuple[int, str],
    name: str,
    spec: Mapping[str, Any],
    *,
    now_us: int,
    of_stream: int,
    in_all: int,
) -> bool:
    """Add a function, or redefine the one with this name. The same spec again changes nothing.

    Args:
        stream: its id and name.
        spec: as JSON, checked.
        of_stream, in_all: the maximum number of functions.

    Returns:
        Whether it is new.

    Raises:
        TooManyFunctionsError: there are as many already.
        UnknownStreamError: the stream was deleted since.
    """
    await begin(tx, stream)
    text = json.dumps(spec, sort_keys=True)
    mine = named(_functions, stream[0], name)
    found = await tx.select(sa.select(_f.spec, _f.epoch, _f.version).where(mine))
    if found and found[0].spec == text:
        return False
    if found:
        changed = renewed(found[0], now_us)
        await tx.execute(_functions.update().where(mine).values(spec=text, state=None, **changed))
        return False
    await check_room(tx, _functions, stream, (of_stream, in_all), TooManyFunctionsError)
    begun = {"stream_id": stream[0], "name": name, "epoch": now_us, "version": 0}
    await tx.execute(_functions.insert().values(**begun, spec=text, state=None))
    return True


async def remove(tx: Writer, stream_id: int, name: str) -> bool:
    """Delete a function. Return False if there is none."""
    return await defining.remove(tx, _functions, stream_id, name)
