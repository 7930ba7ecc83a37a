"""Changes to the catalog: streams created, changed or deleted, and sources revoked.

Each change is one transaction. When it returns, this process has read it, and every other process
reads it before it accepts a post under the former catalog.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import EllipsisType
from typing import Any, TypeVar

from api.errors import (
    MapsKeptError,
    StreamConflictError,
    TooManyStandingError,
    TooManyStreamsError,
    UnknownIntervalError,
    UnknownSourceError,
    UnknownStreamError,
)
from api.journal import log
from api.journal.log import Head, Interval, ReplayError, StorageError, StreamRow
from api.journal.storage import Storage, Writer
from api.service.admission import Admission
from api.service.budget import BUFFER_ROWS
from api.service.committer import Writability
from api.service.follower import Follower
from api.service.streams import Stream, Streams, differences, table_rows
from api.service.threads import Compute
from decaysketch.decay import integral
from decaysketch.families import Recipe, normal_form, recipe_from_dict
from decaysketch.ingest.columns import check_takes_readings
from decaysketch.ingest.formats import check_suits, mappings_of

__all__ = ["MOST_OPERATIONS", "MOST_STANDING", "Catalog", "recipe_of_form"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

ComputeRecipe = Callable[[Mapping[str, Any], bytes | None], Awaitable[Recipe]]

MOST_OPERATIONS = 1 << 16
"""Maximum operations to compute a new stream's decay, if the decay is a text: about half a second
on a usual core. Named decays are bounded by their steps."""

MOST_STANDING = 100
"""Withdrawals that stand in one stream. Each post is checked against all of them."""


class Catalog:
    """Changes to the streams of one database.

    Args:
        storage: the database.
        streams: those that this process knows.
        follower: reads the changes.
        admission: memory for new streams.
        writability: learns of failed transactions.
        compute: reads sketch configurations.
        now_us: the clock, in microseconds since 1970 UTC.
        find: returns a stream by name, even if another process has only just created it.
        taken: waits until this process has read everything up to a head.
        max_streams: maximum number of streams.
        max_clock_skew_s: default of new streams: seconds that a time may lie ahead. None: any.
    """

    def __init__(
        self,
        storage: Storage,
        streams: Streams,
        follower: Follower,
        admission: Admission,
        writability: Writability,
        compute: Compute,
        *,
        now_us: Callable[[], int],
        find: Callable[[str], Awaitable[Stream]],
        taken: Callable[[Head], Awaitable[None]],
        max_streams: int,
        max_clock_skew_s: float | None,
    ) -> None:
        self._storage = storage
        self._streams = streams
        self._follower = follower
        self._admission = admission
        self._writability = writability
        self._compute = compute
        self._now_us = now_us
        self._find = find
        self._taken = taken
        self._max_streams = max_streams
        self._max_clock_skew_s = max_clock_skew_s

    async def create(
        self,
        name: str,
        form: Mapping[str, Any],
        *,
        max_clock_skew_s: float | EllipsisType | None = ...,
        secret_ids: bool = False,
        bind_keys: bool = False,
        ingest: Mapping[str, Any] | None = None,
        view: Mapping[str, Any] | None = None,
        about: Mapping[str, str] | None = None,
        from_level: int = 0,
        may_change: bool = True,
        compute_recipe: ComputeRecipe | None = None,
        compute: Compute | None = None,
    ) -> tuple[Stream, bool]:
        """Return the stream of this name, and whether it is new.

        Args:
            name: the stream name.
            form: its sketch configuration, as ``Recipe.to_dict`` returns it.
            max_clock_skew_s: seconds that a time may lie ahead of the clock. None: any. ``...``:
                the default of the limits, or the present value.
            secret_ids: whether its ids are keyed by a secret, drawn here.
            bind_keys: whether keys of raw observations include the source.
            ingest: mappings from other formats to readings. They replace an existing stream's
                mappings. None: the present mappings, or none.
            view: for a derived stream, its origin.
            about: texts to set, ``unit`` and ``description``. An empty text removes one. Texts
                that are not given stay.
            from_level: the level from which on its sources post all observations.
            may_change: whether it may replace an existing stream's mappings and texts.
            compute_recipe: runs :func:`recipe_of_form`, which may take seconds, where it delays no
                other work. Among the posts if not given. Not called for a stream that exists.
            compute: reads the form in the same way, which takes milliseconds.

        Raises:
            StreamConflictError: it exists with another family or other parameters, or with other
                texts that may not be replaced.
            MapsKeptError: it exists with other mappings, and they may not be replaced.
            ParameterError: no sketch can be built with this, or the merge of its family is not
                idempotent: clients repeat posts and snapshots.
            TooManyStreamsError: the number of streams is at its limit.
            NoRoomError: memory has no space for another one.
            StorageError: the database is out of reach.
        """
        if name not in self._streams:
            await self._follower.catch_up()
        if name not in self._streams:
            if len(self._streams) >= self._max_streams:
                raise TooManyStreamsError(
                    f"there are {len(self._streams)} streams, the maximum of this server"
                )
            id_key = secrets.token_bytes(32) if secret_ids else None
            recipe = await (compute_recipe or self._compute_recipe)(form, id_key)
            recipe.kind.check_deliverable("this service")
            if from_level:
                recipe.empty().snapshot().part(from_level)  # or it has none
            await self._admission.check_stream(name, BUFFER_ROWS + table_rows(recipe))
            row = StreamRow(
                id=0,
                name=name,
                incarnation=secrets.token_hex(8),
                recipe=recipe.to_dict(),
                created_us=self._now_us(),
                max_clock_skew_s=self._max_clock_skew_s
                if max_clock_skew_s is ...
                else max_clock_skew_s,
                id_key=id_key,
                bind_keys=bind_keys,
                ingest=ingest,
                view=view,
                about=_texts({}, about),
                from_level=from_level,
            )
            if ingest is not None:
                check_takes_readings(recipe)
                check_suits(mappings_of(ingest), recipe)
            created = await self._change(lambda tx: log.create(tx, row))
            if created is not None:
                return self._streams[name], True
        stream = self._streams[name]
        id_key = None if not secret_ids else stream.row.id_key or secrets.token_bytes(32)
        ours = stream.recipe.to_dict()
        theirs = await (compute or self._compute)(_normal, form, id_key, ours)
        different = dict(differences(ours, theirs))
        if "family" in different:
            different = {"family": different["family"]}
        if max_clock_skew_s not in (..., stream.row.max_clock_skew_s):
            different["max_clock_skew_s"] = stream.row.max_clock_skew_s, max_clock_skew_s
        if bind_keys != stream.row.bind_keys:
            different["bind_keys"] = stream.row.bind_keys, bind_keys
        if from_level != stream.row.from_level:
            different["from_level"] = stream.row.from_level, from_level
        if view != stream.row.view:
            different["view"] = stream.row.view, view
        texts = _texts(stream.row.about, about)
        if not may_change:
            different |= dict(differences(stream.row.about, texts))
        if different:
            raise StreamConflictError(name, different)
        settings: dict[str, Any] = {} if texts == stream.row.about else {"about": texts}
        if ingest is not None and ingest != stream.row.ingest:
            if not may_change:
                raise MapsKeptError(name)
            check_takes_readings(stream.recipe)
            check_suits(mappings_of(ingest), stream.recipe)
            settings["ingest"] = ingest
        if settings:
            await self._change_row(stream, lambda row: replace(row, **settings))
        return stream, False

    async def _compute_recipe(self, form: Mapping[str, Any], id_key: bytes | None) -> Recipe:
        return await self._compute(recipe_of_form, form, id_key)

    async def stand(self, stream: Stream, where: str, until_us: int) -> None:
        """Withdraw the rows yet to come for which a condition holds, until a time. A time that has
        passed ends it. On return this process has read every post that was journaled before, and
        each later one is checked, in every process.

        Raises:
            UnknownStreamError: there is no such stream.
            TooManyStandingError: it has too many such conditions.
        """
        now_us = self._now_us()

        def changed(row: StreamRow) -> StreamRow:
            found = {**row.standing_at(now_us), where: until_us}
            if until_us <= now_us:
                del found[where]
            elif len(found) > MOST_STANDING:
                raise TooManyStandingError(row.name, MOST_STANDING)
            return replace(row, standing=found)

        await self._change_row(stream, changed)
        await self._taken(await self._storage.read(lambda rx: rx.head()))

    async def _change_row(self, stream: Stream, changed: Callable[[StreamRow], StreamRow]) -> None:
        """Change a stream's variable attributes.

        Raises:
            UnknownStreamError: there is no such stream.
        """
        if await self._change(lambda tx: log.change(tx, stream.id, changed)) is None:
            raise UnknownStreamError(stream.name)

    async def delete(self, name: str) -> None:
        """Delete a stream, all its posts, and its derived streams.

        Raises:
            UnknownStreamError: there is none.
        """
        stream = await self._find(name)
        if not await self._change_with_views(stream, log.delete):
            raise UnknownStreamError(name)

    async def revoke(self, name: str, source: str) -> None:
        """Drop all posts from a source, also from derived streams, and reject the source from now
        on.

        Raises:
            UnknownStreamError: there is no such stream.
        """
        stream = await self._find(name)
        if not await self._change_with_views(stream, lambda tx, of: log.revoke(tx, (of, source))):
            raise UnknownStreamError(name)

    async def reinstate(self, name: str, source: str) -> None:
        """Admit a revoked source again, empty, also to derived streams.

        Raises:
            UnknownSourceError: it was not revoked.
        """
        stream = await self._find(name)
        if not await self._change_with_views(
            stream, lambda tx, of: log.reinstate(tx, (of, source))
        ):
            raise UnknownSourceError(name, [source])

    async def release(self, name: str, source: str, interval: Interval) -> None:
        """Let a source post its numbers again. Posts under them stay.

        Raises:
            UnknownStreamError: there is no such stream.
            UnknownIntervalError: it was not acknowledged as one interval.
        """
        stream = await self._find(name)
        found = await self._storage.write(lambda tx: log.release(tx, (stream.id, source), interval))
        if found is not None:
            given = interval.first, interval.next
            others = [(each.first, each.next) for each in found]
            raise UnknownIntervalError(source, given, others)
        _log.warning(
            "the numbers [%d, %d) of source %r of stream %r were released",
            interval.first, interval.next, source, name,
        )  # fmt: skip

    async def _change_with_views(
        self, stream: Stream, change: Callable[[Writer, int], bool]
    ) -> bool:
        """Change a stream and its derived streams in one transaction. Return the result for the
        stream.
        """
        views = [each.id for each in self._streams.views_of(stream.name)]

        def change_all(tx: Writer) -> bool:
            for view in views:
                change(tx, view)
            return change(tx, stream.id)

        return await self._change(change_all)

    async def _change(self, transaction: Callable[[Writer], T]) -> T:
        self._follower.check()
        try:
            result = await self._storage.write(transaction)
        except (StorageError, ReplayError) as error:
            self._writability.failed(error)
            raise
        await self._follower.catch_up()
        return result


def _texts(before: Mapping[str, str], given: Mapping[str, str] | None) -> dict[str, str]:
    """Return a stream's texts with those that are given. An empty one removes a text."""
    return {name: text for name, text in {**before, **(given or {})}.items() if text}


def recipe_of_form(
    form: Mapping[str, Any],
    id_key: bytes | None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Recipe:
    """Return the sketch configuration in a form, keyed by a secret if there is one. A sketch can be
    built with it.

    Args:
        form: as ``Recipe.to_dict`` returns it.
        id_key: the secret.
        meanwhile: called repeatedly during the decay computation. It may wait, or raise.

    Raises:
        ParameterError: no sketch can be built with this, or its decay takes too long to compute:
            more than MOST_OPERATIONS, which are counted and the same on every machine.
    """
    with integral.at_most(MOST_OPERATIONS, meanwhile):
        recipe = recipe_from_dict(_keyed(form, id_key), id_key=id_key)
        recipe.steps()
    recipe.empty()
    return recipe


def _normal(
    form: Mapping[str, Any], id_key: bytes | None, ours: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the form as a sketch configuration writes it. A decay equal to the decay in
    ``ours`` is not read again.
    """
    form = _keyed(form, id_key)
    known = "decay" in form and form["decay"] == ours.get("decay")
    return normal_form(form, id_key=id_key, read_decay=not known)


def _keyed(form: Mapping[str, Any], id_key: bytes | None) -> Mapping[str, Any]:
    if id_key is None:
        return form
    return dict(form) | {"params": dict(form["params"]) | {"keyed_by": "secret"}}
