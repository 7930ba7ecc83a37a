"""The top-k lists in this process: accepted posts from sites, and rounds opened and closed.

The protocol is the library's (:mod:`decaysketch.topk`). Every step rebuilds its hub from rows
(:meth:`~decaysketch.topk.TopKHub.resumed`). Two things happen, both in any process:

- a *post* is accepted into its site's report alone, on a thread, and written. So its cost depends
  on that report's size, not on other reports. The response is the present request to the site.
- a *round* continues: it is polled several times a second. It is refined as soon as every site has
  answered the request. When half the round is over, an answer from every site heard in it is
  enough. The result is published when there is no further request, or when the round is over and
  the next one begins.

If several processes find the same step, one writes it (:func:`list_rows.step`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from api.errors import ForeignSiteError, UnknownListError
from api.journal.storage import Reader, Storage
from api.logs import Seldom
from api.monitors import list_rows
from api.monitors.coalesced_reads import Looks
from api.monitors.defining import refused
from api.monitors.event_fanout import Mailboxes
from api.monitors.list_rows import LISTS, ListRow, Number, Said
from api.service.aggregator import Aggregator
from api.service.streams import Stream
from api.settings import Settings
from decaysketch.core.time_units import now_in
from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.topk import Ask, Heard, Post, TopKHub, TopKSpec

__all__ = ["MOST_LISTED", "Listed", "Lists", "summary"]

_log = logging.getLogger(__name__)

MOST_LISTED: Final = 1000
"""Maximum sites that a list may name."""

_LOOK_S = 0.2
_SEEK_S = 1.0  # where there is no list, or one does not go on
_WORD_S = 4e-5  # longer, for each word: to read one takes a tenth, of the loop that all share
_REST = 10  # after a step, so many times what it took: no site keeps a thread busy
_SUMMARY_ROWS = 20  # rows in an event

_Event = tuple[list[Any], bool, list[str]]


@dataclass(frozen=True, slots=True)
class Listed:
    """A list, as this process last read it.

    Attributes:
        asked: the request to a site that was not heard.
        sites: all participating sites.
        said: each site's last report, in any round.
    """

    row: ListRow
    spec: TopKSpec
    asked: Ask
    sites: frozenset[str] = frozenset()
    said: Mapping[str, Said] = field(default_factory=dict)

    @property
    def heard(self) -> dict[str, Said]:
        """Return the sites that were heard in this round."""
        now = self.row.epoch, self.asked.as_of
        return {
            site: word
            for site in self.sites
            if (word := self.said.get(site)) and (word.epoch, word.as_of) == now
        }

    def ask(self, site: str) -> Ask:
        """Return the present request to a site."""
        word = self.heard.get(site)
        return replace(self.asked, have=None if word is None else word.number)


class _Step(NamedTuple):
    """The next step in a round."""

    asked: Ask
    found: dict[str, Any] | None  # None: no change
    took_s: float  # processor time


class Lists:
    """The top-k lists of all streams, as one process sees them.

    Args:
        aggregator: the streams' aggregator.
        storage: the same database.
        mailboxes: the followers' mailboxes.
        settings: limits.
    """

    def __init__(
        self, aggregator: Aggregator, storage: Storage, mailboxes: Mailboxes, settings: Settings
    ) -> None:
        self._aggregator = aggregator
        self._storage = storage
        self._mailboxes = mailboxes
        self._settings = settings
        self._known: dict[tuple[int, str], Listed] = {}
        self._done: dict[int, tuple[int, frozenset[tuple[str, Number]]]] = {}  # by id
        self._not_before_s: dict[int, float] = {}
        self._looks = Looks("top-k lists", self._look, _LOOK_S)
        self._unreadable = Seldom(_log)

    # ------------------------------------------------------------------------------- definitions

    def read_spec(self, stream: Stream, form: object) -> TopKSpec:
        """Return a list spec that is valid for a stream.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
            InvalidRequestError: it names more than MOST_LISTED sites, or the server has no clock in
                the stream's unit.
        """
        unit = stream.recipe.params.time_unit
        spec = TopKSpec.from_dict(form, time_unit=unit)
        if now_in(unit, 0) is None:
            raise refused("time_unit", "the server has no clock of it", unit)
        if spec.sites is not None and len(spec.sites) > MOST_LISTED:
            raise refused("sites", "too many", len(spec.sites), MOST_LISTED)
        return spec

    async def define(self, stream: Stream, name: str, spec: TopKSpec) -> tuple[Listed, bool]:
        """Define a list, or redefine the one with its name. Return whether it is new. The same spec
        again changes nothing.

        Raises:
            TooManyListsError: their number is at its limit.
            UnknownStreamError: the stream was deleted since.
            StorageError: it may or may not have happened.
        """
        now_us, of = self._aggregator.now_us(), (stream.id, stream.name)
        settings = self._settings
        new = await self._storage.write(
            lambda tx: LISTS.define(
                tx, of, name, spec.to_dict(), now_us=now_us, of_stream=settings.max_stream_lists,
                in_all=settings.max_lists,
            )
        )  # fmt: skip
        await self.look()
        return self._listed(stream, name), new

    async def remove(self, stream: Stream, name: str) -> None:
        """Delete a list.

        Raises:
            UnknownListError: there is none.
        """
        if not await self._storage.write(lambda tx: LISTS.remove(tx, stream.id, name)):
            raise UnknownListError(stream.name, name)
        await self.look()

    async def find(self, stream: Stream, name: str) -> Listed:
        """Return the last known state, even if another process has only just defined it.

        Raises:
            UnknownListError: there is none.
            StorageError: this process knows of none, and cannot read the database.
        """
        if (stream.id, name) not in self._known:
            await self._looks.later()
        return self._listed(stream, name)

    def of_stream(self, stream: Stream) -> list[Listed]:
        """Return the lists in a stream, ordered by name."""
        mine = [each for (number, _), each in self._known.items() if number == stream.id]
        return sorted(mine, key=lambda each: each.row.name)

    def _listed(self, stream: Stream, name: str) -> Listed:
        try:
            return self._known[stream.id, name]
        except KeyError:
            raise UnknownListError(stream.name, name) from None

    # ------------------------------------------------------------------------------------- posts

    async def ask(self, stream: Stream, name: str, source: str) -> Ask:
        """Return the present request to a site, as far as this process knows. It learns about posts
        to other processes in a moment, and a site that posts again meanwhile does no harm.

        Raises:
            UnknownListError: there is no such list.
        """
        return (await self.find(stream, name)).ask(source)

    async def take(self, stream: Stream, name: str, source: str, form: object) -> Ask:
        """Accept a site's post, and return the present request to it. The same post again changes
        nothing.

        Raises:
            ParameterError: it is no post, comes from another site, contains items that are not in
                the list, or contains too many.
            UnknownListError: there is no such list.
            RevokedSourceError: the source is revoked.
            ForeignSiteError: the site is not in the list, or is one too many.
            StorageError: it may or may not have been accepted. Post again.
        """
        stream.admit(source)
        compute = self._aggregator.compute
        post = await compute(Post.from_dict, form)
        if post.site != source:
            raise ParameterError(f"site is {post.site!r}; the post is of source {source!r}")

        def find(rx: Reader) -> tuple[ListRow, tuple[str, int] | None]:
            row = list_rows.find(rx, stream.id, name)
            if row is None:
                raise UnknownListError(stream.name, name)
            return row, list_rows.word(rx, row, source)

        row, before = await self._storage.read(find)
        asking = _read(row)
        spec = asking.spec
        if spec.sites is not None and source not in spec.sites:
            raise ForeignSiteError(name, source, len(spec.sites), None)
        ask, heard = await compute(_take, asking, post, before)
        if heard is None or post.asked is None:
            return ask
        serial = post.asked[1]
        most = spec.most_sites if spec.sites is None else None
        full = await self._storage.write(
            lambda tx: list_rows.put_word(tx, row, heard, serial, most)
        )
        if full is not None:
            raise ForeignSiteError(name, source, full, spec.most_sites)
        known = self._known.get((stream.id, name))
        if known is not None and known.row.id == row.id:
            word = Said(row.epoch, heard.post.as_of, serial, (heard.post.inc, heard.post.seq))
            self._known[stream.id, name] = replace(
                known, said={**known.said, source: word}, sites=known.sites | {source}
            )
        return ask

    # ------------------------------------------------------------------------------------ rounds

    async def watch(self) -> None:
        """Continue the due rounds, once."""
        words = sum(len(each.said) for each in self._known.values())
        await asyncio.sleep(_LOOK_S + _WORD_S * words)
        if not self._known and self._looks.age_s < _SEEK_S:
            return
        await self._looks.watch()

    async def look(self) -> None:
        """Read all lists, and continue rounds.

        Raises:
            StorageError: the database is out of reach.
        """
        await self._looks.now()

    async def _look(self) -> None:
        known = {each.row.id: each for each in self._known.values()}
        versions, rows, said = await self._storage.read(partial(_read_lists, known))
        for row in rows:
            try:
                known[row.id] = _read(row)
            except DecaySketchError as error:
                known.pop(row.id, None)
                text = "top-k list %r cannot be read: %s"
                self._unreadable.say(logging.ERROR, text, row.name, error)
        found = {}
        for number in versions.keys() & known.keys():
            listed = known[number]
            stream = self._aggregator.stream_by_id(listed.row.stream_id)
            if stream is not None:  # else created or deleted at this moment, elsewhere
                found[stream.id, listed.row.name] = _with(listed, stream, said[number])
        before, self._known = self._known, found
        for key, listed in found.items():
            self._tell(key, before.get(key), listed)
        for key in before.keys() - found.keys():
            self._mailboxes.to_people(key[0], "gone", f"topk/{key[1]}", {"topk": key[1]})
        for of in (self._done, self._not_before_s):
            for number in of.keys() - versions.keys():
                del of[number]
        for key in found:
            try:
                await self._go_on(key)
            except DecaySketchError as error:  # in messages of its sources; other lists continue
                now_s = asyncio.get_running_loop().time()
                self._not_before_s[found[key].row.id] = now_s + _SEEK_S
                text = "top-k list %r is stopped: %s"
                self._unreadable.say(logging.ERROR, text, key[1], error)

    async def _go_on(self, key: tuple[int, str]) -> None:
        """Return the next step of a round, if one is due now."""
        listed = self._known[key]
        row, spec = listed.row, listed.spec
        stream = self._aggregator.stream_by_id(row.stream_id)
        now_s = asyncio.get_running_loop().time()
        if stream is None or now_s < self._not_before_s.get(row.id, -math.inf):
            return
        now_us = self._aggregator.now_us()
        as_of = now_in(stream.recipe.params.time_unit, now_us * 1000)
        assert as_of is not None
        age_s = (now_us - row.opened_us) / 1e6
        if not 0 <= age_s < spec.round_s and (row.last_as_of is None or as_of > row.last_as_of):
            await self._step(listed, as_of, now_us)
        elif row.asked is not None and self._is_answered(listed, waited=age_s >= spec.round_s / 2):
            state = row.version, frozenset((s, w.number) for s, w in listed.heard.items())
            if self._done.get(row.id) != state:
                await self._step(listed, None, now_us)
                self._done[row.id] = state

    def _is_answered(self, listed: Listed, *, waited: bool) -> bool:
        """Return whether all sites have answered the request, or the wait is over."""
        heard, serial = listed.heard, listed.asked.serial
        answered = bool(heard) and all(word.serial == serial for word in heard.values())
        return answered and (waited or len(heard) == len(listed.sites))

    async def _step(self, listed: Listed, as_of: int | None, now_us: int) -> None:
        """Refine a round, or open the next one."""
        row = listed.row
        words = await self._storage.read(lambda rx: list_rows.heard(rx, row))
        compute = self._aggregator.compute_of(len(words) * listed.spec.entries)
        step = await compute(_stepped, listed, words, as_of)
        now_s = asyncio.get_running_loop().time()
        self._not_before_s[row.id] = now_s + _REST * step.took_s
        found = row.found if step.found is None else step.found
        if step.asked == listed.asked and found == row.found:
            return
        opened_us = row.opened_us if as_of is None else now_us
        await self._storage.write(
            lambda tx: list_rows.step(
                tx, row, asked=step.asked.to_dict(), opened_us=opened_us, found=found
            )
        )

    def _tell(self, key: tuple[int, str], before: Listed | None, now: Listed) -> None:
        """Notify a changed list's followers."""
        if now.row.found is None or (before is not None and before.row.found is now.row.found):
            return
        if before is None or _event(before.row) != _event(now.row):
            self._mailboxes.to_people(key[0], "topk", key[1], summary(now))


def _read_lists(
    known: Mapping[int, Listed], rx: Reader
) -> tuple[dict[int, int], list[ListRow], dict[int, dict[str, Said]]]:
    """Return each list's version, the new or changed rows, and the last reports."""
    versions = list_rows.versions(rx)
    news = [i for i, v in versions.items() if i not in known or known[i].row.version != v]
    rows = list_rows.some(rx, news) if news else []
    return versions, rows, {number: list_rows.said(rx, number) for number in versions}


def summary(listed: Listed) -> dict[str, Any]:
    """Return the event about a list."""
    found = dict(listed.row.found or {"as_of": None, "rows": [], "certain": False, "without": []})
    return {
        "topk": listed.row.name,
        "epoch": listed.row.epoch,
        "as_of": found["as_of"],
        "certain": found["certain"],
        "without": len(found["without"]),
        "rows": found["rows"][:_SUMMARY_ROWS],
    }


def _event(row: ListRow) -> _Event | None:
    """Return the parts of a list that cause an event when they change: items in their order, its
    certificate, missing sites. Counts change with every round.
    """
    found = row.found
    if found is None:
        return None
    return [each["item"] for each in found["rows"]], found["certain"], found["without"]


def _read(row: ListRow) -> Listed:
    """Return a list without its sites. Where its epoch has no request yet, the request is the first
    one of a new hub.
    """
    spec = TopKSpec.from_dict(row.spec)
    if row.asked is not None:
        return Listed(row, spec, Ask.from_dict(row.asked))
    hub = TopKHub(spec.k, [row.name], epoch=row.epoch, entries=spec.entries)
    return Listed(row, spec, hub.asked)


def _with(listed: Listed, stream: Stream, said: Mapping[str, Said]) -> Listed:
    names = said.keys() if listed.spec.sites is None else listed.spec.sites
    return replace(listed, sites=frozenset(names) - frozenset(stream.revoked), said=said)


def _hub(listed: Listed, sites: Collection[str], words: Collection[tuple[str, int]]) -> TopKHub:
    spec, heard = listed.spec, (list_rows.kept(*word) for word in words)
    return TopKHub.resumed(spec.k, sites, listed.asked, heard, entries=spec.entries)


def _take(listed: Listed, post: Post, before: tuple[str, int] | None) -> tuple[Ask, Heard | None]:
    """Return the response to a post, and the row to store for its site, or None for nothing new. On
    a thread.

    A post that follows a request from another epoch counts by another definition, or by a request
    from before a backup was restored. It is not accepted.
    """
    hub = _hub(listed, [post.site], [] if before is None else [before])
    had = hub.ask(post.site)
    if post.asked is None or post.asked[0] != listed.row.epoch:
        return had, None
    listed.spec.check(item for item, _ in post.entries)
    ask = hub.take(post)
    return ask, hub.heard(post.site) if ask.have != had.have else None


def _stepped(listed: Listed, words: Collection[tuple[str, int]], as_of: int | None) -> _Step:
    """Return a refined round, or the next one at a time. On a thread."""
    began_s = time.thread_time()
    sites = listed.sites or {listed.row.name}  # a stream without posts asks, too
    hub = _hub(listed, sites, words)
    if as_of is not None:
        found = hub.top().to_dict() if words else None
        asked = hub.begin(as_of)
    else:
        found = hub.top().to_dict() if hub.refine() is None else None
        asked = hub.asked
    return _Step(asked, found, time.thread_time() - began_s)
