"""Where the paper of TOPiCo errs in print: each printed form fails, each corrected one holds.

Section numbers are those of the paper; T1 to T5 are errata of algorithm 1 and of its observations,
which :class:`quality.papers.topico.Topico` has in both forms, T6 to T10 of its text. Of items
with equal counts the smaller comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from decaysketch.errors import ParameterError
from decaysketch.topk.ranking import Count, Item, top
from quality.papers.topico import ERRATA, Candidates, Topico

Table = Sequence[Mapping[Item, Count]]


def exchange(sites: Sequence[Topico], counts: Table) -> list[Candidates]:
    """One synchronous round."""
    lists = [site.disseminate(mine) for site, mine in zip(sites, counts, strict=True)]
    for site in sites:
        for j, each in enumerate(lists):
            site.update(j, each)
    return lists


def network(n: int, k: int, *printed: str) -> list[Topico]:
    return [Topico(n, k, printed) for _ in range(n)]  # type: ignore[arg-type]


def summed(counts: Table) -> dict[Item, Count]:
    return {x: sum(each.get(x, 0) for each in counts) for x in {x for each in counts for x in each}}


class TestT1ItemsThatExpiredStay:
    """Lines 9 to 12 go over the new list only."""

    BEFORE = ({"x": 10}, {"y": 3})
    AFTER = ({}, {"y": 3})

    def lists(self, *printed: str) -> list[tuple[Item, Count]]:
        sites = network(2, 1, *printed)
        exchange(sites, self.BEFORE)
        for _ in range(10):
            exchange(sites, self.AFTER)
        return sites[0].top()

    def test_printed_keeps_what_nobody_has(self) -> None:
        assert self.lists("T1") == [("x", 10)]

    def test_corrected_forgets_it(self) -> None:
        assert self.lists() == [("y", 3)]


class TestT2EchoesKeepEachOtherAlive:
    """Lines 27 to 29 echo what was only echoed."""

    BEFORE = ({"x": 9, "a": 1}, {"x": 9, "a": 1})
    AFTER = ({"x": 1, "a": 90}, {"x": 1, "a": 90})

    def sent(self, *printed: str) -> bool:
        """Whether x is sent long after it last passed any test."""
        sites = network(2, 1, *printed)
        exchange(sites, self.BEFORE)
        for _ in range(50):
            lists = exchange(sites, self.AFTER)
        return any("x" in each.counts for each in lists)

    def test_printed_sends_it_for_ever(self) -> None:
        assert self.sent("T2")

    def test_corrected_does_not(self) -> None:
        assert not self.sent()


class TestT3WhatIsCutOffIsMissing:
    """Line 13 keeps k of the items that it just summed; the other lists still name more."""

    def lists(self, *printed: str) -> list[tuple[Item, Count]]:
        """Two sites' lists, and then one of the second without its first item."""
        site = Topico(2, 1, printed)  # type: ignore[arg-type]
        site.update(0, Candidates({"x": 4}, {}))
        site.update(1, Candidates({"y": 9}, {}))
        site.update(1, Candidates({"z": 1}, {}))
        return site.top()

    def test_printed_lost_it(self) -> None:
        assert self.lists("T3") == [("z", 1)]

    def test_corrected_has_it(self) -> None:
        assert self.lists() == [("x", 4)]


class TestT4ThereMayBeNoKthItem:
    """Line 15: G_i[k-1] of a list of fewer than k."""

    COUNTS: ClassVar = {item: 100 - item for item in range(100)}

    def test_printed_sends_everything(self) -> None:
        assert len(Topico(2, 5, ["T4"]).disseminate(self.COUNTS).counts) == 100

    def test_and_with_t2_for_ever(self) -> None:
        sent = {}
        for name, printed in {"both": ("T2", "T4"), "T2": ("T2",)}.items():
            sites = network(2, 5, *printed)
            for _ in range(5):
                lists = exchange(sites, [self.COUNTS, {}])
            sent[name] = len(lists[0].counts)
        assert sent["both"] == 100
        assert sent["T2"] < 60

    def test_corrected_begins_with_k(self) -> None:
        assert list(Topico(2, 5).disseminate(self.COUNTS).primary) == [0, 1, 2, 3, 4]


class TestT5CountsMayTie:
    """Observations 1 and 2 test with a strict sign; k = 1, x = (1, 1), y = (2, 0), x before y."""

    COUNTS = ({"a": 1, "x": 1, "y": 2}, {"b": 1, "x": 1})

    def lists(self, *printed: str) -> list[tuple[Item, Count]]:
        sites = network(2, 1, *printed)
        for _ in range(5):
            exchange(sites, self.COUNTS)
        return sites[0].top()

    def test_strictly_x_never_passes(self) -> None:
        assert self.lists("T5") == [("y", 2)]

    def test_as_in_line_19_it_does(self) -> None:
        assert self.lists() == top(summed(self.COUNTS), 1) == [("x", 2)]


class TestT6TasksHaveEachOthersNames:
    """4.1 calls making a list *update* and receiving one *disseminate*; algorithm 1 does not."""

    def test_names_are_those_of_the_algorithm(self) -> None:
        site = Topico(1, 1)
        made = site.disseminate({"x": 1})
        assert isinstance(made, Candidates)
        assert site.top() == []  # making one changes nothing
        site.update(0, made)
        assert site.top() == [("x", 1)]

    def test_exchanged_as_in_4_1_they_do_not_fit(self) -> None:
        with pytest.raises(TypeError):
            Topico(1, 1).update({"x": 1})  # type: ignore[call-arg, arg-type]


class TestT7DistanceIsToWhatIsTrueThen:
    """Definition 1: d(G_{i,t}, G_i) compares a site's list with itself."""

    def test_as_printed_a_site_that_hears_nothing_is_perfect(self) -> None:
        def distance(one: list[tuple[Item, Count]], two: list[tuple[Item, Count]]) -> int:
            return len({x for x, _ in one} ^ {x for x, _ in two})

        deaf, true = Topico(2, 1), top({"x": 3}, 1)
        assert distance(deaf.top(), deaf.top()) == 0
        assert distance(deaf.top(), true) == 1


class TestT8CountsHaveToSettleToo:
    """Theorem 1: that the true list converges is enough, and by the end of the round."""

    def test_the_true_list_never_changes_and_every_third_is_wrong(self) -> None:
        sites, right = network(2, 1), []
        for t in range(60):
            y = (50, 45, 40)[t % 3]
            counts = ({"y": y, "r": 60}, {"y": y, "s": 60})
            assert top(summed(counts), 1) == [("y", 2 * y)]
            exchange(sites, counts)
            right.append(sites[0].top() == [("y", 2 * y)])
        assert right[3:] == [True, True, False] * 19

    def test_it_takes_two_rounds(self) -> None:
        """The example of lemma 3: x is second at both sites, and first of all."""
        counts = ({"a": 10, "x": 6}, {"d": 9, "x": 5})
        sites, held = network(2, 1), []
        for _ in range(3):
            exchange(sites, counts)
            held.append(sites[1].top())
        assert held == [[("a", 10)], [("x", 11)], [("x", 11)]]


class TestT9ExamplesOfSection3:
    """3.1 has L_{i,4} for the global list; lemma 2 rounds t / delta where it means lambda t."""

    EVENTS = (("x", 1), ("x", 2), ("y", 3), ("z", 4))

    def counts(self, now: int) -> dict[Item, Count]:
        inside = [item for item, time in self.EVENTS if now - 3 < time <= now]
        return {item: inside.count(item) for item in inside}

    def test_the_local_list_at_4_has_three_items_and_the_global_one_has_one(self) -> None:
        assert self.counts(3) == {"x": 2, "y": 1}
        local = self.counts(4)
        assert local == {"x": 1, "y": 1, "z": 1} != {"z": 1}
        greatest_first = {"x": 2, "y": 1, "z": 0}  # the paper's order of ties: the last letter
        assert top({greatest_first[x]: c for x, c in local.items()}, 1) == [(0, 1)]  # type: ignore[index]

    def test_the_newest_item_goes_by_the_rate(self) -> None:
        rate, delta, t = 4, 10, 30
        arrived = [i / rate for i in range(1_000) if i / rate <= t]
        assert len(arrived) - 1 == rate * t != t // delta


class TestT10GoodIsAtAllTimes:
    """Section 5: "0.24-good on average"; definition 2 is about the worst time."""

    def test_a_mean_says_nothing_of_the_most(self) -> None:
        distances = [0.0] * 76 + [1.0] * 24
        assert sum(distances) / len(distances) == pytest.approx(0.24)
        assert not all(distance < 0.25 for distance in distances)


class TestTheReference:
    @pytest.mark.parametrize("printed", [(), ("T5",)])
    def test_lists_settle_two_rounds_after_counts_do(self, printed: tuple[str, ...]) -> None:
        """T5 needs ties, and these have none."""
        counts = tuple(
            {item: 1 + (item * (7 + site)) % 31 * 100 + item for item in range(40)}
            for site in range(4)
        )
        sites = network(4, 5, *printed)
        for _ in range(3):
            exchange(sites, counts)
        assert sites[2].top() == top(summed(counts), 5)

    def test_one_site_alone_is_right_at_once(self) -> None:
        sites = network(1, 2)
        exchange(sites, [{"x": 1, "y": 4, "z": 2}])
        assert sites[0].top() == [("y", 4), ("z", 2)]

    def test_wrong_parameters_are_named(self) -> None:
        for sites, k in ((0, 1), (1, 0)):
            with pytest.raises(ParameterError, match="expected 1 or more"):
                Topico(sites, k)
        with pytest.raises(ParameterError, match="T6"):
            Topico(1, 1, ["T6"])  # type: ignore[list-item]
        assert ERRATA == ("T1", "T2", "T3", "T4", "T5")
