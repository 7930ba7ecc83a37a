"""A hub and its sites over a network that loses, repeats and reorders; and what is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from decaysketch.topk import Ask, Heard, Post, TopK, TopKHub, TopKSite
from decaysketch.topk.ranking import Count, Item, top

__all__ = ["World", "check", "run_round", "summed"]

Counts = Mapping[Item, int | float]


def summed(tables: Sequence[Counts]) -> dict[Item, Count]:
    """Counts of all sites together, exactly where they are whole."""
    return {x: sum(each.get(x, 0) for each in tables) for x in {x for t in tables for x in t}}


def check(found: TopK, tables: Sequence[Counts], k: int) -> None:
    """Ends hold; a list that is certain has the k largest counts of these sites, exactly."""
    true = summed(tables)
    listed = [row.item for row in found.rows]
    assert len(set(listed)) == len(listed) <= k
    assert all(row.lower <= true.get(row.item, 0) <= row.upper for row in found.rows)
    assert all(count <= found.outside for item, count in true.items() if item not in listed)
    if found.certain:
        assert [row.lower for row in found.rows] == [count for _, count in top(true, k)]
        assert all(row.lower == row.upper == true[row.item] for row in found.rows)


def run_round(
    hub: TopKHub, sites: Sequence[TopKSite], tables: Sequence[Counts], as_of: int
) -> tuple[TopK, int]:
    """A round over a network that works; its list, and how many exchanges it took."""
    ask, exchanges = hub.begin(as_of), 1
    for site, counts in zip(sites, tables, strict=True):
        site.take(ask)
        hub.take(site.post(counts, as_of))
    while hub.refine() is not None:
        exchanges += 1
        for site in sites:
            post = site.take(hub.ask(site.name))
            assert post is not None
            hub.take(post)
    return hub.top(), exchanges


class World:
    """Seeded faults. What a site said is remembered by its incarnation and number.

    Args:
        seed: of everything that is drawn.
        loss, copies: how often a message is lost, or delivered twice.
        silent: sites that are never heard.
        kept: the hub is made anew for every step, from what it keeps.
    """

    def __init__(
        self, seed: int, *, loss: float = 0.2, copies: float = 0.2, silent: int = 0,
        kept: bool = False,
    ) -> None:  # fmt: skip
        self.draw = Random(seed)
        self.kept = kept
        self.loss, self.copies = loss, copies
        self.k, n = self.draw.randint(1, 4), self.draw.randint(1 + silent, 6)
        self.names = [f"site-{i}" for i in range(n)]
        self.silent = set(self.names[:silent])
        self.epoch = 0
        self.hub = TopKHub(self.k, self.names, epoch=0)
        self.sites = {name: TopKSite(name, 0) for name in self.names}
        self.counts: dict[str, Counts] = {}
        self.said: dict[tuple[str, int], Counts] = {}  # by site and incarnation, of this round
        self.wire: list[Post | tuple[str, Ask]] = []
        self.as_of = 0
        self.certain = 0

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._open()
            for _ in range(40):
                self._step()
                if self.kept:
                    self._keep()
                self._check()

    def _keep(self) -> None:
        heard = [self.hub.heard(name) for name in self.names]
        words = [Heard(Post.from_json(e.post.to_json()), e.told) for e in heard if e is not None]
        before = self.hub.top()
        self.hub = TopKHub.resumed(
            self.k, self.names, Ask.from_json(self.hub.asked.to_json()), words
        )
        assert self.hub.top() == before

    def _open(self) -> None:
        self.as_of += 1
        if self.draw.random() < 0.1:  # the hub begins anew
            self.epoch += 1
            self.hub = TopKHub(self.k, self.names, epoch=self.epoch)
        self.hub.begin(self.as_of)
        whole = self.draw.random() < 0.5
        self.counts = {
            name: {
                x: self.draw.randint(0, 9) if whole else self.draw.expovariate(1)
                for x in self.draw.sample([1, 2, "a", "b", "c", "d", "e"], self.draw.randint(0, 7))
            }
            for name in self.names
        }
        self.said = {}

    def _step(self) -> None:
        chance, name = self.draw.random(), self.draw.choice(self.names)
        if chance < 0.04:  # a site crashes; it comes back with other counts
            self.sites[name] = TopKSite(name, self.sites[name].inc + 1)
            self.counts[name] = {x: c + 1 for x, c in self.counts[name].items() if x != "a"}
        elif chance < 0.3:
            self._send((name, self.hub.ask(name)))
        elif chance < 0.45:
            self.hub.refine()
        elif chance < 0.55:
            self._post(name)
        elif self.wire:
            self._deliver(self.wire.pop(self.draw.randrange(len(self.wire))))

    def _post(self, name: str) -> None:
        site = self.sites[name]
        self.said[name, site.inc] = self.counts[name]
        self._send(site.post(self.counts[name], self.as_of))

    def _send(self, message: Post | tuple[str, Ask]) -> None:
        if self.draw.random() >= self.loss:
            self.wire += [message] * (2 if self.draw.random() < self.copies else 1)

    def _deliver(self, message: Post | tuple[str, Ask]) -> None:
        if isinstance(message, Post):
            if message.site not in self.silent:
                read = Post.from_json(message.to_json())
                assert read == message
                self._send((message.site, self.hub.take(read)))
            return
        name, ask = message
        answer = self.sites[name].take(Ask.from_json(ask.to_json()))
        if answer is not None:
            self._send(answer)
        elif ask.as_of == self.as_of and (name, self.sites[name].inc) not in self.said:
            self._post(name)

    def _check(self) -> None:
        found = self.hub.top()
        heard = [name for name in self.names if self.hub.ask(name).have is not None]
        assert found.without == tuple(sorted(set(self.names) - set(heard)))
        assert self.silent <= set(found.without)
        tables = []
        for name in heard:
            have = self.hub.ask(name).have
            assert have is not None
            tables.append(self.said[name, have[0]])
        exact = [{x: _exact(c) for x, c in table.items()} for table in tables]
        _check_exactly(found, exact, self.k)
        self.certain += found.certain


def _exact(count: int | float) -> Count:
    from fractions import Fraction

    return count if isinstance(count, int) else Fraction(count)


def _check_exactly(found: TopK, tables: Sequence[Mapping[Item, Count]], k: int) -> None:
    """As :func:`check`; sums of real counts are compared as the float next to them."""
    true = {x: sum(t.get(x, 0) for t in tables) for x in {x for t in tables for x in t}}
    near = {x: c if isinstance(c, int) else float(c) for x, c in true.items()}
    check(found, [near], k)
