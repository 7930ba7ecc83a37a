"""TopKSite and TopKHub: the k largest counts over many sites, in rounds, with a certificate.

What it keeps
    A site: its counts as of the round's time, and the newest ask. The hub: the newest word of each
    site in this round, bounded, and the watched items of its last asks. Neither does input or
    output or reads a clock; messages (:mod:`~decaysketch.topk.messages`) may be lost, repeated,
    late or reordered, sites may crash and come back with a larger ``inc``, the hub with a larger
    ``epoch``.
A round
    :meth:`TopKHub.begin` opens it, as of a time of the hub's clock. Each site posts its items with
    a count above ``floor``, those that are watched, and its largest count of all others, ``rest``.
    So the hub knows of every item

        lower(x) = sum of counts that were sent
        upper(x) = lower(x) + sum of ``rest`` over sites that did not send x, nor were asked for it

    and of an item that nobody sent, upper = sum of all ``rest``. With G, the k-th largest lower
    end (0 where there are fewer items), the list is *certain* if no item has an upper end above G,
    unless its ends are equal. If it is not, :meth:`TopKHub.refine` asks for just those items by
    name, and for counts above G / n.
What it promises
    A list that is certain has the k largest counts over the sites that were heard, each exactly,
    as of the round's time. Where several items tie for the last places it is one of the right
    lists. Sites that were not heard are named in ``without``: the list is that of all others.
    Nothing is promised of what arrives after the round's time.
    From what was heard, two exchanges after the first are enough, and one more where the first
    brought fewer than k items; lists so flat that more items are between than may be watched stay
    uncertain. After floor G / n no item that nobody sent has more than G; the items that this
    brought are asked for by name.
Kept elsewhere
    A hub is what was asked and what was heard of each site: :attr:`TopKHub.asked` and
    :meth:`TopKHub.heard`, from which :meth:`TopKHub.resumed` makes the same one anew, in any
    process. Who keeps the former alone has the next round cost one exchange more.
Whence
    The three phases are those of Cao and Wang, "Efficient top-k query calculation in distributed
    networks" (PODC 2004). Floor and watched items of the round before stand in for the first two,
    so most rounds take one exchange. The hub, in place of TOPiCo's broadcast, is what makes a
    certificate possible: see ``quality/papers/topico.py``.
Counts
    Whole numbers, or real ones as decays give them. Sums are exact: all are of integers, as many to
    one as the finest count of the round needs. So no order of sites changes a list. Each event is
    to be counted at one site: what is heard at several is counted several times. A certificate is
    about the counts that sites state: of estimates it makes a certain list of estimates.
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
_ASKS: Final = 8  # whose watched items the hub remembers

Number = int | float


class TopKSite:
    """A site: from its counts and the hub's asks to posts.

    Args:
        name: as the hub knows it.
        inc: its incarnation: larger each time the process begins anew, kept where it lasts.
        entries: so many has it at the hub in one round, at most; watched items are among them,
            however many.

    A site that lost its counts stays silent until it has counted for as long as the decay reaches
    back: the hub cannot tell a count that was lost from one that never was.

    Raises:
        ParameterError: no such name or incarnation.
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
        """The newest that was taken."""
        return self._ask

    def post(self, counts: Mapping[Item, int | float], as_of: int) -> Post:
        """Say what the counts are as of a time.

        Args:
            counts: of every item, as of that time. Items are integers within 2^53 or texts; counts
                are at least 0, and below 2^53. They are copied.
            as_of: not before that of the last post.

        Raises:
            ParameterError: no such item, count or time. O(n log n) for n items.
        """
        check_whole("as_of", as_of, -MAX_NUMBER)
        if self._as_of is not None and as_of < self._as_of:
            raise ParameterError(f"as_of is {as_of}; the last post was as of {self._as_of}")
        copied = {_plain(item): _plain(count) for item, count in counts.items()}
        for item, count in copied.items():
            check_item(item)
            check_count(f"the count of {item!r}", count)
        self._counts = {item: count for item, count in copied.items() if count}
        self._ranked = ranked(self._counts)
        self._as_of = as_of
        return self._say(added=False)

    def take(self, ask: Ask) -> Post | None:
        """Hear the hub; what to post because of it, or None.

        None, too, where counts as of another time are wanted: ``ask.as_of`` is not that of the last
        post, and :meth:`post` is to be called with those.
        """
        if self._ask is not None and ask.number < self._ask.number:
            return None
        self._ask = ask
        if ask.as_of is None or ask.as_of != self._as_of:
            return None
        if ask.have != (self.inc, self._seq):
            last = self._last
            # A new number would make the hub's next ask stale, too, and so on for ever.
            if last is not None and last.base is None and last.asked == ask.number:
                return last
            return self._say(added=False)
        if ask.number == self._followed:
            return None
        return self._say(added=True)

    def _say(self, *, added: bool) -> Post:
        """The next post, by the present ask; ``added``: to the last one, where that fits."""
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
        """Items that the ask is about, watched ones first: those are never left out."""
        ask = self._ask
        if ask is None:  # nothing is known of what matters
            return dict.fromkeys(item for item, _ in self._ranked[:1])
        wanted = dict.fromkeys(item for item in ask.watched if item in self._counts)
        for place, (item, count) in enumerate(self._ranked):
            above = ask.floor is not None and count > ask.floor
            if len(wanted) >= most or not (above or place < ask.least):
                break
            wanted[item] = None
        return wanted


class Row(NamedTuple):
    """An item of a list, and what its count is: from ``lower`` to ``upper``."""

    item: Item
    lower: int | float
    upper: int | float


@dataclass(frozen=True, slots=True)
class TopK:
    """What the hub knows of a round.

    Attributes:
        as_of: time of the round; None before the first.
        rows: at most k, by ``lower``; of equal ones, by the item.
        certain: whether these are the k largest counts of the sites that were heard, exactly.
        outside: no other item has more.
        without: sites that were not heard, in their order.
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
    """What a hub has of a site in this round, as it may be kept.

    Attributes:
        post: all that the site said, as one post that follows no ask.
        told: so many of the first items that are watched now were asked of it: of those that are
            not among the entries it has none.
    """

    post: Post
    told: int


@dataclass(frozen=True, slots=True)
class _Word:
    """What a site said of this round."""

    number: tuple[int, int]  # (inc, seq)
    told: frozenset[Item]  # asked for by name: those that are no entries it does not have
    counts: dict[Item, Number]
    rest: Number


@dataclass(frozen=True, slots=True)
class _Known:
    """Both ends of every item that was sent, and what follows: integers, ``scale`` to one."""

    scale: int
    lower: dict[Item, int]
    upper: dict[Item, int]
    unseen: int  # upper end of every other item
    rows: list[Item]
    last: int  # G: the k-th largest lower end, 0 where there are fewer

    @property
    def open(self) -> list[Item]:
        """Items that stand between the list and its certificate."""
        return [x for x, high in self.upper.items() if high > self.last and high > self.lower[x]]

    @property
    def certain(self) -> bool:
        return self.unseen <= self.last and not self.open

    def number(self, exact: int) -> Number:
        """What an end is; where that is no float, the one next to it."""
        whole, rest = divmod(exact, self.scale)
        return whole if not rest else exact / self.scale


class TopKHub:
    """The hub of a list: from posts of sites to asks and lists.

    Args:
        k: how many items, 1 to MAX_K.
        sites: names of all that take part. Each event is to be counted at one of them.
        epoch: larger each time the hub begins anew, kept where it lasts: a site hears no ask of an
            older one.
        margin: 0 to 1. The next round's floor is this share of G / n, and items with an upper end
            of this share of G are watched: the larger, the fewer entries and the more rounds with a
            second exchange.
        entries: so many has a site in one round, at most; half as many items are watched.

    Raises:
        ParameterError: a parameter is outside of its domain.
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
        """The hub that has asked this last, and heard that in the same round.

        Args:
            k, sites, entries: as above. Sites may be others than before.
            asked: :attr:`asked`.
            heard: of :meth:`heard`; what is of no site, or of another round, is left out.

        Raises:
            ParameterError: a parameter is outside of its domain. O(entries).
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
        """What is asked of a site that was not heard."""
        return self._ask

    def heard(self, site: str) -> Heard | None:
        """What is had of a site in this round; None: nothing. O(its entries)."""
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
        """Open the next round; what is asked of every site.

        What was heard of the last round is forgotten, but for what to ask: read :meth:`top` before.
        Posts of it that come later are not taken.

        Raises:
            ParameterError: ``as_of`` is no time after that of the last round.
        """
        check_whole("as_of", as_of, -MAX_NUMBER)
        if self._ask.as_of is not None and as_of <= self._ask.as_of:
            raise ParameterError(f"as_of is {as_of}; the last round was as of {self._ask.as_of}")
        ask = replace(self._ask, serial=self._ask.serial + 1, as_of=as_of)
        if self._words:  # else what was asked last is asked again
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
        """Hear a site; what is asked of it now.

        A post that is older than what is had, of another round, or that adds to one that is not
        had, changes nothing: the ask that comes back says what is had.

        Raises:
            ParameterError: no site of this list, or more entries than may be in all; nothing
                was taken. O(entries).
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
        """What is asked of a site now, with what is had of it."""
        word = self._words.get(site)
        return self._ask if word is None else replace(self._ask, have=word.number)

    def refine(self) -> Ask | None:
        """Ask for what the certificate lacks; None where the list is certain, or that is what the
        present ask does already.

        To be called when every site was heard, or waiting for the others was given up; then
        :meth:`ask` of each site is what it has to hear. O(entries).
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
        """The list of this round, as far as it is known. O(entries)."""
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
        """Ends of all items, from the words of this round."""
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
    """The first, and of more those of the largest upper ends, as many as may be watched."""
    kept = dict.fromkeys(first)
    kept.update(dict.fromkeys(sorted(more, key=lambda item: (-upper[item], order(item)))))
    return tuple(kept)[:most]


def _share(of: int | Fraction, parts: int) -> float:
    """``of / parts``, or what is just below it: so many counts that are not above it are at most
    ``of`` together."""
    exact = Fraction(of) / parts
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else nextafter(nearest, -inf)


def _scaled(count: Number, scale: int) -> int:
    """A count, ``scale`` to one: a power of two that its denominator divides."""
    top, bottom = count.as_integer_ratio()
    return top * (scale // bottom)


def _plain(value: Any) -> Any:
    """What NumPy's scalars are in Python."""
    return value.item() if isinstance(value, np.generic) else value
