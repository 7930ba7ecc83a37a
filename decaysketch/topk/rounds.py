"""TopKSite and TopKHub: the k largest counts over many sources, in rounds, with a certificate.

Contents
    A source stores its counts as of the round's time, and the newest request. The hub stores the
    newest report per source in this round, with bounded size, and the watched items in its last
    requests. Neither does input or output or reads a clock. Messages
    (:mod:`~decaysketch.topk.messages`) may be lost, repeated, late or reordered. Sources may crash
    and return with a larger ``inc``, the hub with a larger ``epoch``.
A round
    :meth:`TopKHub.begin` opens it, as of a time on the hub's clock. Each source posts its items
    with a count above ``floor``, the watched items, and its largest count among all others,
    ``rest``. So the hub knows for every item

        lower(x) = sum of counts that were sent
        upper(x) = lower(x) + sum of ``rest`` over sites that did not send x, nor were asked for it

    and for an item that no source sent, upper = sum of all ``rest``. Let G be the k-th largest
    lower bound (0 if there are fewer items). The list is *certain* if no item has an upper bound
    above G, unless its bounds are equal. If it is not, :meth:`TopKHub.refine` requests just those
    items by name, and counts above G / n.
Guarantees
    A certain list has the k largest counts over the sources heard, each exact, as of the round's
    time. If several items tie for the last places it is one of the correct lists. ``without`` names
    the sources that were not heard, and the list covers all others. Nothing is guaranteed about
    data that arrive after the round's time.
    From the data received, two exchanges after the first are enough, and one more if the first
    returned fewer than k items. Lists stay uncertain if they are so flat that more items are in
    between than the hub may watch. After floor G / n no item that no source sent has more than G.
    The items that this exchange returned are requested by name.
Stored elsewhere
    The requests and the data received from each source define a hub: :attr:`TopKHub.asked` and
    :meth:`TopKHub.heard`. :meth:`TopKHub.resumed` builds the same hub again from them, in any
    process. If you store only the former, the next round costs one exchange more.
Origin
    The three phases come from Cao and Wang, "Efficient top-k query calculation in distributed
    networks" (PODC 2004). Floor and watched items of the round before replace the first two, so
    most rounds take one exchange. The hub, instead of TOPiCo's broadcast, makes a certificate
    possible: see ``quality/papers/topico.py``.
Counts
    Integers, or real numbers from decays. Sums are exact: they use integers, scaled to the finest
    count in the round. So the order of sources does not change a list. Count each event at one
    source: an event at several sources counts several times. A certificate is about the counts
    that sources report: if these are estimates, it is a certain list of estimates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, inf, nextafter
from typing import Any, Final, NamedTuple, Self

import numpy as np

from decaysketch.errors import ParameterError
from decaysketch.topk.messages import (
    MAX_ENTRIES,
    MAX_K,
    MAX_NUMBER,
    MAX_WATCHED,
    Ask,
    Post,
    check_count,
    check_item,
    check_site,
    check_whole,
)
from decaysketch.topk.ranking import Item, order, ranked, top

__all__ = ["Heard", "Row", "TopK", "TopKHub", "TopKSite"]

_MARGIN: Final = 0.9
_ASKS: Final = 8  # requests with watched items that the hub remembers

Number = int | float


class TopKSite:
    """A source: turns its counts and the hub's requests into posts.

    Args:
        name: the name that the hub uses.
        inc: its incarnation: larger after each restart of the process, stored durably.
        entries: maximum number of its entries at the hub in one round. Watched items are among
            them, however many.

    A source that lost its counts stays silent until it has counted for as long as the decay reaches
    back: the hub cannot distinguish a lost count from one that never existed.

    Raises:
        ParameterError: an invalid name or incarnation.
    """

    def __init__(self, name: str, inc: int, *, entries: int = MAX_ENTRIES) -> None:
        check_site("name", name)
        check_whole("inc", inc)
        check_whole("entries", entries, 1, MAX_ENTRIES)
        self.name, self.inc = name, inc
        self._most = entries
        self._ask: Ask | None = None
        self._followed: tuple[int, int] | None = None  # ask of the last post
        self._seq = 0  # of the last post
        self._last: Post | None = None
        self._as_of: int | None = None
        self._counts: dict[Item, int | float] = {}
        self._ranked: list[tuple[Item, int | float]] = []
        self._sent: set[Item] = set()  # in this round, by the last post and those it added to

    @property
    def ask(self) -> Ask | None:
        """The newest request that the source accepted."""
        return self._ask

    def post(self, counts: Mapping[Item, int | float], as_of: int) -> Post:
        """Set the counts as of a time, and return the post.

        Args:
            counts: every item's count, as of that time. Items are integers within 2^53 or texts.
                Counts are at least 0, and below 2^53. They are copied.
            as_of: not before the time of the last post.

        Raises:
            ParameterError: an invalid item, count or time. O(n log n) for n items.
        """
        check_whole("as_of", as_of, -MAX_NUMBER)
        if self._as_of is not None and as_of < self._as_of:
            raise ParameterError(f"as_of is {as_of}; the last post had {self._as_of}")
        copied = {_plain(item): _plain(count) for item, count in counts.items()}
        for item, count in copied.items():
            check_item(item)
            check_count(f"the count of {item!r}", count)
        self._counts = {item: count for item, count in copied.items() if count}
        self._ranked = ranked(self._counts)
        self._as_of = as_of
        return self._say(added=False)

    def take(self, ask: Ask) -> Post | None:
        """Accept a request from the hub. Return the post that it requires, or None.

        It also returns None if the hub requests counts as of another time: ``ask.as_of`` is not the
        time of the last post. Then call :meth:`post` with those counts.
        """
        if self._ask is not None and ask.number < self._ask.number:
            return None
        self._ask = ask
        if ask.as_of is None or ask.as_of != self._as_of:
            return None
        if ask.have != (self.inc, self._seq):
            last = self._last
            # A new number would make the hub's next request stale, too, and so on.
            if last is not None and last.base is None and last.asked == ask.number:
                return last
            return self._say(added=False)
        if ask.number == self._followed:
            return None
        return self._say(added=True)

    def _say(self, *, added: bool) -> Post:
        """Return the next post, for the current request. ``added``: as an addition to the last
        post, if it fits.
        """
        assert self._as_of is not None
        wanted = self._wanted(self._most)
        new = [item for item in wanted if item not in self._sent] if added else list(wanted)
        added = added and len(self._sent) + len(new) <= self._most
        if not added:
            new, self._sent = list(wanted), set()
        self._sent.update(new)
        rest = next((count for item, count in self._ranked if item not in self._sent), 0)
        self._seq += 1
        self._followed = None if self._ask is None else self._ask.number
        self._last = Post(
            site=self.name, inc=self.inc, seq=self._seq, as_of=self._as_of,
            asked=self._followed,
            base=self._seq - 1 if added else None,
            entries=tuple((item, self._counts[item]) for item in new),
            rest=rest,
        )  # fmt: skip
        return self._last

    def _wanted(self, most: int) -> dict[Item, None]:
        """Items that the request covers, watched items first: these are never skipped."""
        ask = self._ask
        if ask is None:  # the relevant items are unknown
            return dict.fromkeys(item for item, _ in self._ranked[:1])
        wanted = dict.fromkeys(item for item in ask.watched if item in self._counts)
        for place, (item, count) in enumerate(self._ranked):
            above = ask.floor is not None and count > ask.floor
            if len(wanted) >= most or not (above or place < ask.least):
                break
            wanted[item] = None
        return wanted


class Row(NamedTuple):
    """An item in a list. Its count is between ``lower`` and ``upper``."""

    item: Item
    lower: int | float
    upper: int | float


@dataclass(frozen=True, slots=True)
class TopK:
    """The hub's knowledge about a round.

    Attributes:
        as_of: time of the round. None before the first.
        rows: at most k, by ``lower``, and by item if equal.
        certain: whether these are the k largest counts over the sources heard, exactly.
        outside: no other item has more.
        without: sources that were not heard, in their order.
    """

    as_of: int | None
    rows: tuple[Row, ...]
    certain: bool
    outside: int | float
    without: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "as_of": self.as_of,
            "rows": [row._asdict() for row in self.rows],
            "certain": self.certain,
            "outside": self.outside,
            "without": list(self.without),
        }


class Heard(NamedTuple):
    """A hub's data from one source in this round, in a form that can be stored.

    Attributes:
        post: the source's complete data, as one post that follows no request.
        told: number of watched items, from the first, that were requested from it. The source has
            no count for such an item if it is not among the entries.
    """

    post: Post
    told: int


@dataclass(frozen=True, slots=True)
class _Word:
    """A source's report in this round."""

    number: tuple[int, int]  # (inc, seq)
    told: frozenset[Item]  # asked for by name: those that are no entries it does not have
    counts: dict[Item, Number]
    rest: Number


@dataclass(frozen=True, slots=True)
class _Known:
    """Both bounds for every item that was sent, and derived values: integers, ``scale`` to one."""

    scale: int
    lower: dict[Item, int]
    upper: dict[Item, int]
    unseen: int  # upper end of every other item
    rows: list[Item]
    last: int  # G: the k-th largest lower end, 0 where there are fewer

    @property
    def open(self) -> list[Item]:
        """Items that prevent the certificate."""
        return [x for x, high in self.upper.items() if high > self.last and high > self.lower[x]]

    @property
    def certain(self) -> bool:
        return self.unseen <= self.last and not self.open

    def number(self, exact: int) -> Number:
        """A bound as a number, or the nearest float if it is not a float."""
        whole, rest = divmod(exact, self.scale)
        return whole if not rest else exact / self.scale


class TopKHub:
    """The hub of a list: turns posts from sources into requests and lists.

    Args:
        k: number of items, 1 to MAX_K.
        sites: names of all sources that take part. Count each event at one of them.
        epoch: larger after each restart of the hub, stored durably: a source ignores requests with
            an older one.
        margin: 0 to 1. The next round's floor is this share of G / n, and the hub watches items
            with an upper bound above this share of G. The larger the margin, the fewer entries and
            the more rounds with a second exchange.
        entries: maximum number of entries per source in one round. The hub watches at most half as
            many items.

    Raises:
        ParameterError: a parameter is outside its domain.
    """

    def __init__(
        self, k: int, sites: Iterable[str], *, epoch: int = 0, margin: float = _MARGIN,
        entries: int = MAX_ENTRIES,
    ) -> None:  # fmt: skip
        check_whole("k", k, 1, MAX_K)
        check_whole("epoch", epoch)
        if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 < margin <= 1:
            raise ParameterError(f"margin is {margin!r}; expected a number above 0, at most 1")
        check_whole("entries", entries, min(2 * k, MAX_ENTRIES), MAX_ENTRIES)
        names = sorted(sites)
        for name in names:
            check_site("a site", name)
        if not names or len(set(names)) < len(names):
            raise ParameterError(f"sites are {names!r}; expected one or more, each once")
        self.k, self.sites = k, tuple(names)
        self._margin = Fraction(margin)
        self._most, self._most_watched = entries, min(MAX_WATCHED, entries // 2)
        self._words: dict[str, _Word] = {}
        self._ask = Ask(epoch=epoch, serial=0, as_of=None, floor=None, least=2 * k, watched=())
        self._asks: deque[tuple[tuple[int, int], frozenset[Item]]] = deque(maxlen=_ASKS)
        self._issue(self._ask)

    @classmethod
    def resumed(
        cls, k: int, sites: Iterable[str], asked: Ask, heard: Iterable[Heard] = (), *,
        entries: int = MAX_ENTRIES,
    ) -> Self:  # fmt: skip
        """Return the hub that sent this last request and received these data in the same round.

        Args:
            k, sites, entries: as above. Sources may differ from before.
            asked: :attr:`asked`.
            heard: results of :meth:`heard`. Data from no known source, or from another round, are
                dropped.

        Raises:
            ParameterError: a parameter is outside its domain. O(entries).
        """
        hub = cls(k, sites, epoch=asked.epoch, entries=entries)
        hub._asks.clear()
        hub._issue(asked)
        for post, told in heard:
            if post.site in hub.sites and post.as_of == asked.as_of:
                hub._words[post.site] = _Word(
                    (post.inc, post.seq), frozenset(asked.watched[:told]), dict(post.entries),
                    post.rest,
                )  # fmt: skip
        return hub

    @property
    def asked(self) -> Ask:
        """The request for a source that was not heard."""
        return self._ask

    def heard(self, site: str) -> Heard | None:
        """Return the data from a source in this round. None: nothing. O(its entries)."""
        word, as_of = self._words.get(site), self._ask.as_of
        if word is None or as_of is None:
            return None
        post = Post(
            site=site, inc=word.number[0], seq=word.number[1], as_of=as_of, asked=None, base=None,
            entries=tuple(word.counts.items()), rest=word.rest,
        )  # fmt: skip
        watched = self._ask.watched
        told = next((i for i, x in enumerate(watched) if x not in word.told), len(watched))
        return Heard(post, told)

    # -------------------------------------------------------------------------------------- rounds

    def begin(self, as_of: int) -> Ask:
        """Open the next round. Return the request for every source.

        The hub drops the last round's data, except those that it needs for requests: read
        :meth:`top` before. Later posts for that round are ignored.

        Raises:
            ParameterError: ``as_of`` is not a time after the last round.
        """
        check_whole("as_of", as_of, -MAX_NUMBER)
        if self._ask.as_of is not None and as_of <= self._ask.as_of:
            raise ParameterError(f"as_of is {as_of}; the last round had {self._ask.as_of}")
        ask = replace(self._ask, serial=self._ask.serial + 1, as_of=as_of)
        if self._words:  # else repeat the last request
            known = self._known()
            bar = self._margin * known.last
            least = ceil(bar)
            watched = [x for x, low in known.lower.items() if low and known.upper[x] >= least]
            ask = replace(
                ask,
                floor=_share(bar, known.scale * len(self.sites)) if bar else None,
                least=1 if bar else 2 * self.k,
                watched=_limited([], watched, known.upper, self._most_watched),
            )
        self._issue(ask)
        self._words = {}
        return ask

    def take(self, post: Post) -> Ask:
        """Accept a post from a source. Return the next request for it.

        A post changes nothing if it is older than the hub's data, belongs to another round, or adds
        to a post that the hub does not have. The returned request says which data the hub has.

        Raises:
            ParameterError: not a source in this list, or more entries than permitted in total.
                Nothing was accepted. O(entries).
        """
        if post.site not in self.sites:
            raise ParameterError(f"site is {post.site!r}; expected one of {len(self.sites)} sites")
        if post.as_of != self._ask.as_of:
            return self.ask(post.site)
        had, number = self._words.get(post.site), (post.inc, post.seq)
        if had is not None and number <= had.number:
            return self.ask(post.site)
        before: Mapping[Item, Number] = {}
        if post.base is not None:
            if had is None or had.number != (post.inc, post.base):
                return self.ask(post.site)
            before = had.counts
        counts = {**before, **dict(post.entries)}
        if len(counts) > self._most:
            raise ParameterError(
                f"entries of {post.site!r} in this round are {len(counts)}; expected at most "
                f"{self._most}"
            )
        told = next((told for ask, told in self._asks if ask == post.asked), frozenset[Item]())
        self._words[post.site] = _Word(number, told, counts, post.rest)
        return self.ask(post.site)

    def ask(self, site: str) -> Ask:
        """Return the current request for a source, including the hub's data from it."""
        word = self._words.get(site)
        return self._ask if word is None else replace(self._ask, have=word.number)

    def refine(self) -> Ask | None:
        """Request the data that the certificate lacks. Return None if the list is certain, or if
        the current request already covers them.

        Call it when every source was heard, or when you stop waiting for the others. Then send each
        source its :meth:`ask`. O(entries).
        """
        known = self._known()
        if known.certain:
            return None
        asked, floor, least = self._ask, self._ask.floor, self._ask.least
        if known.last:
            floor = _share(known.last, known.scale * len(self.sites))
        elif least < 2 * self.k:  # fewer than k items are known
            least = 2 * self.k
        watched = _limited(asked.watched, known.open, known.upper, self._most_watched)
        refined = replace(asked, floor=floor, least=least, watched=watched)
        if refined == asked:
            return None
        self._issue(replace(refined, serial=asked.serial + 1))
        return self._ask

    def top(self) -> TopK:
        """Return this round's list, as far as it is known. O(entries)."""
        known = self._known()
        listed = set(known.rows)
        others = [high for item, high in known.upper.items() if item not in listed]
        return TopK(
            self._ask.as_of,
            tuple(
                Row(x, known.number(known.lower[x]), known.number(known.upper[x]))
                for x in known.rows
            ),
            bool(self._words) and known.certain,
            known.number(max([known.unseen, *others])),
            tuple(name for name in self.sites if name not in self._words),
        )

    # ---------------------------------------------------------------------------------- the inside

    def _issue(self, ask: Ask) -> None:
        self._ask = ask
        self._asks.append((ask.number, frozenset(ask.watched)))

    def _known(self) -> _Known:
        """Return the bounds for all items, from this round's reports."""
        scale = 1
        for word in self._words.values():
            for count in (word.rest, *word.counts.values()):
                scale = max(scale, count.as_integer_ratio()[1])  # powers of two
        rests = [_scaled(word.rest, scale) for word in self._words.values()]
        unseen = sum(rests)
        lower: dict[Item, int] = {}
        upper: dict[Item, int] = {}
        for word, rest in zip(self._words.values(), rests, strict=True):
            for item, count in word.counts.items():
                exact = _scaled(count, scale)
                lower[item] = lower.get(item, 0) + exact
                upper[item] = upper.get(item, unseen) + exact - rest
            for item in word.told:
                if item not in word.counts:  # the site has none
                    lower[item] = lower.get(item, 0)
                    upper[item] = upper.get(item, unseen) - rest
        rows = top(lower, self.k)
        last = rows[-1][1] if len(rows) == self.k else 0
        return _Known(scale, lower, upper, unseen, [item for item, _ in rows], last)


def _limited(
    first: Iterable[Item], more: Iterable[Item], upper: Mapping[Item, int], most: int
) -> tuple[Item, ...]:
    """Return the first items, then further items with the largest upper bounds, up to the watch
    limit.
    """
    kept = dict.fromkeys(first)
    kept.update(dict.fromkeys(sorted(more, key=lambda item: (-upper[item], order(item)))))
    return tuple(kept)[:most]


def _share(of: int | Fraction, parts: int) -> float:
    """``of / parts``, or the nearest smaller number such that ``parts`` counts not above it are at
    most ``of`` together.
    """
    exact = Fraction(of) / parts
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else nextafter(nearest, -inf)


def _scaled(count: Number, scale: int) -> int:
    """A count, ``scale`` to one: a power of two that its denominator divides."""
    top, bottom = count.as_integer_ratio()
    return top * (scale // bottom)


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers."""
    return value.item() if isinstance(value, np.generic) else value
