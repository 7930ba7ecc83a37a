"""TOPiCo: top-k over many sites without a hub, by rounds of broadcasts: a reference and baseline.

Schiavoni, Rivière, Sutra and others, "TOPiCo: detecting most frequent items from multiple high-rate
event streams" (DEBS 2015), algorithm 1. Every ``delta`` each site broadcasts a list of candidates:
the items of its own counts that pass

    count * sites >= Gamma, the count of the k-th item of its global list

and its own counts of items that passed at another site (observations 1 and 2). What it received
last from each site, summed, is its global list.

It promises that lists are right two rounds after counts of items and competitors stopped changing:
an item that belongs into the list has a site with at least the mean of its count, and sums of what
was sent never exceed true ones, so Gamma is never too high. While counts move it promises nothing,
and no site knows whether its list is right; the number of sites is part of the test, so one that
joins or leaves unknown to another costs items. :mod:`~decaysketch.topk.rounds` is what to use.

The print errs in five places of the algorithm; ``printed`` puts these back:

T1  Lines 9 to 12 sum anew the items of the list that arrived, and not those of the one before it:
    an item that expired stays for ever.
T2  Lines 27 to 29 echo every item of any list, echoes too, which keep each other alive. Here a list
    is in two parts, and only what passed the test (*primary*) is echoed.
T3  Line 13 cuts the global list to ``l``, a variable of the other task, by its comment to k: what
    is cut off is missing when it belongs into the list again. Here the list is derived.
T4  Line 15 reads the k-th item where there may be fewer. Taken for 0, everything is sent, and by T2
    for ever; here the first k are sent.
T5  Observations 1 and 2 and the proof test ``>``, line 19 ``>=``, which is right: counts may tie.

The other errata are of definitions and text: ``tests/topk/test_errata.py`` has all ten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from decaysketch.errors import ParameterError
from decaysketch.topk.ranking import Count, Item, ranked, top

__all__ = ["ERRATA", "Candidates", "Erratum", "Topico"]

Erratum = Literal["T1", "T2", "T3", "T4", "T5"]
ERRATA: Final[tuple[Erratum, ...]] = get_args(Erratum)


@dataclass(frozen=True)
class Candidates:
    """What a site broadcasts; no item is in both parts.

    Attributes:
        primary: items that passed its test, or are among its first k, with their counts there.
        echo: its counts of items that passed elsewhere.
    """

    primary: Mapping[Item, Count]
    echo: Mapping[Item, Count]

    @property
    def counts(self) -> dict[Item, Count]:
        """Both parts."""
        return {**self.primary, **self.echo}


class Topico:
    """One site.

    Args:
        sites: how many there are, N.
        k: items of a list.
        printed: which errata are as in the print.

    Raises:
        ParameterError: no site, no item, or no such erratum.
    """

    def __init__(self, sites: int, k: int, printed: Collection[Erratum] = ()) -> None:
        if sites < 1 or k < 1:
            raise ParameterError(f"sites are {sites} and k is {k}; expected 1 or more")
        if unknown := sorted(set(printed) - set(ERRATA)):
            raise ParameterError(f"printed has {unknown[0]!r}; expected some of {ERRATA}")
        self.sites, self.k, self._printed = sites, k, frozenset(printed)
        self._lists: dict[int, Candidates] = {}  # candidates_i[j]
        self._global: dict[Item, Count] = {}  # G_i

    def disseminate(self, counts: Mapping[Item, Count]) -> Candidates:
        """What to broadcast, from this site's counts (L_i). O(n log n)."""
        mine = [entry for entry in ranked(counts) if entry[1] > 0]
        length = min(self.k, len(mine))
        gamma = self._gamma()
        while length < len(mine) and self._passes(mine[length][1], gamma):
            length += 1
        primary = dict(mine[:length])
        named = {
            item
            for each in self._lists.values()
            for item in (each.counts if "T2" in self._printed else each.primary)
        }
        echo = {item: counts[item] for item in named - primary.keys() if counts.get(item, 0) > 0}
        return Candidates(primary, echo)

    def update(self, site: int, candidates: Candidates) -> None:
        """Receive the list of a site, this one among them. O(sites) for each item."""
        new = candidates.counts
        before = self._lists[site].counts if site in self._lists else {}
        self._lists[site] = candidates
        for item in new if "T1" in self._printed else {**new, **before}:
            total = sum(
                each.primary.get(item, each.echo.get(item, 0)) for each in self._lists.values()
            )
            self._global[item] = total
            if not total:
                del self._global[item]
        if "T3" in self._printed:
            self._global = dict(top(self._global, self.k))

    def top(self) -> list[tuple[Item, Count]]:
        """The global list: k items with their counts, as far as they are known here."""
        return top(self._global, self.k)

    def _gamma(self) -> Count | None:
        """Count of the k-th item of the global list; None where there are fewer."""
        first = self.top()
        return first[-1][1] if len(first) == self.k else None

    def _passes(self, count: Count, gamma: Count | None) -> bool:
        if gamma is None:
            return "T4" in self._printed
        return count * self.sites > gamma if "T5" in self._printed else count * self.sites >= gamma
