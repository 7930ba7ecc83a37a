"""Configured queries: named queries that an operator defined for a stream, to be scraped.

They are rows next to the monitors' rows, read with every scrape. If a process defines or deletes
one, all processes see it. A query is checked before it comes here (:mod:`api.queries.configured`).
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from api.errors import TooManyQuestionsError, UnknownQuestionError
from api.journal.monitor_tables import questions as _questions
from api.journal.storage import Storage, Writer
from api.monitors import defining
from api.monitors.defining import Limit, begin, check_room, named
from api.service.streams import Stream
from api.settings import Settings

__all__ = ["Configured", "ConfiguredQuestion"]

_q = _questions.c


@dataclass(frozen=True, slots=True)
class ConfiguredQuestion:
    """One configured query.

    Attributes:
        name: its name, in its stream.
        set_name: the set that is scraped together.
        query: as JSON.
    """

    name: str
    set_name: str
    query: str


class Configured:
    """Configured queries in all streams.

    Args:
        storage: where they are stored.
        settings: limits for their number.
    """

    def __init__(self, storage: Storage, settings: Settings) -> None:
        self._storage = storage
        self._settings = settings

    async def of_stream(self, stream: Stream) -> list[ConfiguredQuestion]:
        """Return a stream's queries, ordered by name.

        Raises:
            StorageError: they cannot be read.
        """
        chosen = sa.select(_q.name, _q.set_name, _q.query).where(_q.stream_id == stream.id)
        rows = await self._storage.read(lambda rx: rx.select(chosen.order_by(_q.name)))
        return [ConfiguredQuestion(*row) for row in rows]

    async def define(self, stream: Stream, question: ConfiguredQuestion) -> bool:
        """Add a query, or replace the one with the same name. Return whether it is new.

        Raises:
            TooManyQuestionsError: their number is at its limit.
            UnknownStreamError: the stream was deleted since.
            StorageError: it may or may not have happened.
        """
        of = stream.id, stream.name
        mine = named(_questions, stream.id, question.name)
        said = {"set_name": question.set_name, "query": question.query}

        def define(tx: Writer) -> bool:
            begin(tx, of)
            if tx.execute(_questions.update().where(mine).values(**said)):
                return False
            settings = self._settings
            most = settings.max_stream_questions, settings.max_questions
            check_room(tx, _questions, of, Limit(*most, TooManyQuestionsError))
            of_it = {"stream_id": stream.id, "name": question.name}
            tx.execute(_questions.insert().values(**of_it, **said))
            return True

        return await self._storage.write(define)

    async def remove(self, stream: Stream, name: str) -> None:
        """Delete a query.

        Raises:
            UnknownQuestionError: there is none.
            StorageError: it may or may not have happened.
        """
        if not await self._storage.write(
            lambda tx: defining.remove(tx, _questions, stream.id, name)
        ):
            raise UnknownQuestionError(stream.name, f"question {name!r}")
