"""What a certificate promises: the k largest counts, exactly, whatever happens on the way."""

from __future__ import annotations

from collections import deque
from itertools import combinations_with_replacement, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topk.world import World, check, run_round, summed

import decaysketch as ds
from decaysketch.errors import ParameterError
from decaysketch.topk import Ask, Post, Tally, TopKHub, TopKSite
from decaysketch.topk.messages import MAX_ENTRIES
from decaysketch.topk.ranking import top


def sites_of(n: int) -> list[TopKSite]:
    return [TopKSite(f"{i:03}", 1) for i in range(n)]


def hub_of(k: int, n: int) -> TopKHub:
    return TopKHub(k, [site.name for site in sites_of(n)])


class TestTheExampleOfLemma3:
    COUNTS = ({"a": 10, "x": 6}, {"d": 9, "x": 5})

    def test_first_items_of_sites_are_no_certificate(self) -> None:
        hub, sites = hub_of(1, 2), sites_of(2)
        hub.begin(0)
        for site, counts in zip(sites, self.COUNTS, strict=True):
            hub.take(site.post(counts, 0))  # without an ask a site says its first item
        found = hub.top()
        assert not found.certain
        assert found.rows == (("a", 10, 15),)
        assert found.outside == 15

    def test_a_second_exchange_finds_what_is_second_everywhere(self) -> None:
        hub, sites = hub_of(1, 2), sites_of(2)
        hub.begin(0)
        for site, counts in zip(sites, self.COUNTS, strict=True):
            hub.take(site.post(counts, 0))
        while hub.refine() is not None:
            for site in sites:
                post = site.take(hub.ask(site.name))
                assert post is not None
                assert post.base is not None
                hub.take(post)
        assert hub.top().to_dict() == {
            "as_of": 0,
            "rows": [{"item": "x", "lower": 11, "upper": 11}],
            "certain": True,
            "outside": 10,
            "without": [],
        }


class TestEnumeration:
    """Every table of up to 3 sites, 3 items and counts of 0 to 3, of 3 sites of 0 to 2; sites and
    items in one order."""

    @pytest.mark.parametrize(("n", "most"), [(1, 3), (2, 3), (3, 2)])
    def test_certain_lists_are_those_of_brute_force(self, n: int, most: int) -> None:
        rows = list(product(range(most + 1), repeat=3))
        seen = set()
        for table in combinations_with_replacement(rows, n):
            swapped = min(
                tuple(sorted(tuple(row[i] for i in order) for row in table))
                for order in permutations(range(3))
            )
            if swapped in seen:
                continue
            seen.add(swapped)
            self._check(swapped, 1 + len(seen) % 2)
        assert len(seen) == {1: 20, 2: 430, 3: 738}[n]

    def _check(self, table: tuple[tuple[int, ...], ...], k: int) -> None:
        """A first round in which sites say one item each, so that there is much to ask."""
        counts = [dict(enumerate(row)) for row in table]
        hub, sites = hub_of(k, len(table)), sites_of(len(table))
        hub.begin(0)
        for site, mine in zip(sites, counts, strict=True):
            hub.take(site.post(mine, 0))
        check(hub.top(), counts, k)
        for _ in range(4):
            if hub.top().certain:
                break
            hub.refine()
            for site in sites:
                post = site.take(hub.ask(site.name))
                if post is not None:
                    hub.take(post)
            check(hub.top(), counts, k)
        found = hub.top()
        assert found.certain
        assert [row.lower for row in found.rows] == [c for _, c in top(summed(counts), k)]


class TestRounds:
    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(
        st.lists(
            st.lists(
                st.dictionaries(
                    st.integers(0, 8) | st.sampled_from("abc"),
                    st.integers(0, 12) | st.floats(0, 12),
                    max_size=9,
                ),
                min_size=3, max_size=3,
            ),
            min_size=1, max_size=4,
        ),
        st.integers(1, 4),
        st.sampled_from([0.5, 0.9, 1.0]),
    )  # fmt: skip
    def test_every_round_is_certain_within_four_exchanges(self, tables, k, margin) -> None:  # type: ignore[no-untyped-def]
        sites = sites_of(3)
        hub = TopKHub(k, [site.name for site in sites], margin=margin)
        for as_of, counts in enumerate(tables):
            found, exchanges = run_round(hub, sites, counts, as_of)
            assert found.certain
            assert exchanges <= 4
            assert found.without == ()
            exact = [{x: c for x, c in each.items() if c} for each in counts]
            assert len(found.rows) == min(k, len({x for each in exact for x in each}))

    def test_a_steady_stream_takes_one_exchange_and_few_entries(self) -> None:
        hub, sites = hub_of(5, 4), sites_of(4)
        counts = [{item: 1_000 // (1 + item) + site for item in range(200)} for site in range(4)]
        run_round(hub, sites, counts, 0)
        for as_of in range(1, 5):
            before = hub.ask("000").serial
            found, exchanges = run_round(hub, sites, counts, as_of)
            assert (found.certain, exchanges) == (True, 1)
            assert hub.ask("000").serial == before + 1
        post = sites[0].post(counts[0], 9)
        assert len(post.entries) <= 7

    def test_windows_that_empty_and_fill_are_certain(self) -> None:
        hub, sites = hub_of(3, 2), sites_of(2)
        full = [{item: 50 - item for item in range(40)}, {item: 10 + item for item in range(40)}]
        for as_of, counts in enumerate([full, [{}, {}], full, [{7: 1}, {}], full]):
            found, _ = run_round(hub, sites, counts, as_of)
            assert found.certain
            check(found, counts, 3)

    def test_ties_go_to_the_smaller_item_integers_first(self) -> None:
        hub, sites = hub_of(3, 1), sites_of(1)
        found, _ = run_round(hub, sites, [{"b": 2, 10: 2, "a": 2, 9: 2}], 0)
        assert [row.item for row in found.rows] == [9, 10, "a"]

    def test_decayed_counts_are_those_at_the_time_of_the_round(self) -> None:
        decay = ds.decay.exponential(half_life=10)
        tallies = [Tally(decay), Tally(decay)]
        tallies[0].update(["old"] * 5 + ["new"] * 2, [0] * 5 + [20] * 2)
        tallies[1].update(["late", "new"], [25, 19])
        hub, sites = hub_of(1, 2), sites_of(2)
        for as_of, expected in ((0, "old"), (20, "new")):
            found, _ = run_round(hub, sites, [each.at(as_of) for each in tallies], as_of)
            assert found.certain
            [row] = found.rows
            assert row.item == expected
        assert row.lower == pytest.approx(2 + 2**-0.1, abs=1e-12)


class TestFaults:
    @pytest.mark.parametrize("seed", range(24))
    def test_no_certificate_lies(self, seed: int) -> None:
        world = World(seed, loss=0.1 * (seed % 4), copies=0.2, silent=seed % 3, kept=seed % 2 == 1)
        world.run(8)
        assert world.certain or seed % 4 == 3

    def test_an_older_incarnation_is_not_heard(self) -> None:
        hub = hub_of(1, 1)
        hub.begin(0)
        old, new = TopKSite("000", 1), TopKSite("000", 2)
        late = [old.post({"x": 9}, 0), old.post({"x": 9}, 0)]
        hub.take(new.post({"x": 1}, 0))
        for post in late:
            assert hub.take(post).have == (2, 1)
        assert hub.top().rows == (("x", 1, 1),)

    def test_what_adds_to_a_post_that_was_lost_is_not_taken(self) -> None:
        hub, [site] = hub_of(1, 1), sites_of(1)
        ask = hub.begin(0)
        first = site.post({"x": 3, "y": 2, "z": 1}, 0)  # lost
        site.take(ask)
        told = Ask.from_dict({**hub.ask("000").to_dict(), "have": [1, first.seq + 1], "serial": 9})
        added = site.take(told)
        assert added is not None
        assert added.base == first.seq + 1
        assert hub.take(added).have is None
        again = site.take(Ask.from_dict({**told.to_dict(), "serial": 10, "have": None}))
        assert again is not None
        assert again.base is None
        assert hub.take(again).have == (1, again.seq)
        assert hub.top().certain

    def test_a_post_of_another_round_is_not_taken_and_the_round_is_told(self) -> None:
        hub, [site] = hub_of(1, 1), sites_of(1)
        post = site.post({"x": 1}, 5)
        assert hub.take(post).as_of is None
        assert hub.begin(6).as_of == 6
        assert hub.take(post).as_of == 6
        assert hub.top().without == ("000",)
        assert not hub.top().certain
        assert hub.refine() is None or not hub.top().certain

    def test_an_ask_of_an_older_epoch_is_not_heard(self) -> None:
        [site] = sites_of(1)
        new, old = TopKHub(1, ["000"], epoch=2), TopKHub(1, ["000"], epoch=1)
        site.take(new.begin(1))
        site.take(old.begin(3))
        assert site.ask is not None
        assert site.ask.epoch == 2

    def test_an_ask_that_the_hub_forgot_only_makes_the_list_less_certain(self) -> None:
        sites = sites_of(2)
        before = hub_of(2, 2)
        counts = [{"x": 5, "y": 4, "z": 1}, {"x": 5, "z": 4}]
        for as_of in range(2):
            run_round(before, sites, counts, as_of)
        hub = TopKHub(2, ["000", "001"], epoch=0)  # begins anew without saying so
        hub.begin(2)
        for site, mine in zip(sites, counts, strict=True):
            hub.take(site.post(mine, 2))
            check(hub.top(), counts[: int(site.name) + 1], 2)

    def test_nothing_was_heard_yet(self) -> None:
        found = hub_of(2, 2).top()
        assert (found.as_of, found.rows, found.certain) == (None, (), False)
        assert found.without == ("000", "001")


class TestWhatIsKept:
    def test_what_a_site_was_told_is_what_stands_first_among_the_watched_ones(self) -> None:
        hub, sites = hub_of(1, 2), sites_of(2)
        counts = [{"a": 10, "x": 6, "r": 2}, {"d": 9, "x": 5, "r": 2}]
        run_round(hub, sites, counts, 0)
        ask = hub.begin(1)
        for site, mine in zip(sites, counts, strict=True):
            site.take(ask)
            hub.take(site.post(mine, 1))
        heard = [hub.heard(site.name) for site in sites]
        assert [each and each.told for each in heard] == [len(ask.watched)] * 2
        sound = TopKHub.resumed(1, hub.sites, hub.asked, [each for each in heard if each])
        assert sound.top() == hub.top()
        assert sound.top().certain
        # Who was told nothing may have any of them.
        untold = [each._replace(told=0) for each in heard if each]
        assert not TopKHub.resumed(1, hub.sites, hub.asked, untold).top().certain

    def test_words_of_others_and_of_other_rounds_are_left_out(self) -> None:
        hub, sites = hub_of(1, 2), sites_of(2)
        counts = [{"a": 2}, {"b": 1}]
        run_round(hub, sites, counts, 0)
        words = [each for site in sites if (each := hub.heard(site.name))]
        alone = TopKHub.resumed(1, ["000"], hub.asked, words)
        assert (alone.top().rows, alone.top().without) == ((("a", 2, 2),), ())
        later = TopKHub.resumed(1, hub.sites, hub.begin(1), words)
        assert later.top().without == hub.sites
        assert later.heard("000") is None

    @pytest.mark.parametrize("entries", [4, 9, 200])
    def test_with_few_entries_a_list_is_certain_or_says_that_it_is_not(self, entries: int) -> None:
        names = ["000", "001", "002"]
        hub = TopKHub(2, names, entries=entries)
        sites = [TopKSite(name, 1, entries=entries) for name in names]
        tables = [{x: 20 + x * (i + 3) % 7 for x in range(40)} for i in range(3)]
        certain = []
        for as_of in range(3):
            found, _ = run_round(hub, sites, tables, as_of)
            check(found, tables, 2)
            certain.append(found.certain)
            assert len(hub.asked.watched) <= entries // 2
        assert any(certain) == (entries == 200)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((0, ["a"]), "k is 0"),
            ((1_001, ["a"]), "k is 1001"),
            ((True, ["a"]), "k is True"),
            ((1, []), "sites are"),
            ((1, ["a", "a"]), "each once"),
            ((1, [""]), "a site is ''"),
        ],
    )
    def test_hub(self, arguments: tuple[object, ...], said: str) -> None:
        with pytest.raises(ParameterError, match=said):
            TopKHub(*arguments)  # type: ignore[arg-type]

    @pytest.mark.parametrize("margin", [0, 1.1, float("nan"), True, "1"])
    def test_margin(self, margin: object) -> None:
        with pytest.raises(ParameterError, match="margin is"):
            TopKHub(1, ["a"], margin=margin)  # type: ignore[arg-type]

    def test_strangers_and_times_that_run_back(self) -> None:
        hub, site = hub_of(1, 1), TopKSite("nobody", 1)
        hub.begin(3)
        with pytest.raises(ParameterError, match="'nobody'"):
            hub.take(site.post({}, 3))
        with pytest.raises(ParameterError, match="as_of is 3"):
            hub.begin(3)
        with pytest.raises(ParameterError, match="last post had 3"):
            site.post({}, 2)

    @pytest.mark.parametrize("count", [-1, float("nan"), float("inf"), 1 << 53, True, "1", None])
    def test_counts_that_are_none(self, count: object) -> None:
        with pytest.raises(ParameterError, match="the count of 'x' is"):
            TopKSite("a", 1).post({"x": count}, 0)  # type: ignore[dict-item]

    def test_more_entries_than_a_site_may_have(self) -> None:
        hub, half = hub_of(1, 1), MAX_ENTRIES // 2 + 1
        hub.begin(0)

        def post(seq: int, first: int) -> Post:
            entries = tuple((item, 1) for item in range(first, first + half))
            return Post(
                site="000", inc=1, seq=seq, as_of=0, asked=None, base=seq - 1 if seq else None,
                entries=entries, rest=1,
            )  # fmt: skip

        hub.take(post(0, 0))
        with pytest.raises(ParameterError, match=f"are {2 * half}; expected at most"):
            hub.take(post(1, half))
        assert hub.ask("000").have == (1, 0)

    def test_a_site_says_no_more_than_it_may(self) -> None:
        hub, [site] = hub_of(1, 1), sites_of(1)
        hub.begin(0)
        flat = dict.fromkeys(range(MAX_ENTRIES + 5), 1)
        site.take(Ask(epoch=0, serial=5, as_of=0, floor=0, least=0, watched=(MAX_ENTRIES + 2,)))
        post = site.post(flat, 0)
        assert len(post.entries) == MAX_ENTRIES
        assert post.entries[0] == (MAX_ENTRIES + 2, 1)
        assert post.rest == 1


class TestARepeatedAsk:
    @pytest.mark.parametrize("copies", [1, 2, 3])
    @pytest.mark.parametrize("doubled", [0, 2, 7])
    def test_ends_in_silence(self, copies: int, doubled: int) -> None:
        """Asks that are sent several times, and answers that arrive twice, over links that lose
        nothing. Each repetition had made the next answer stale, for ever."""
        counts = {"000": {"ada": 10, "eve": 6}, "001": {"bob": 9, "eve": 5}}
        hub, sites = hub_of(1, 2), {site.name: site for site in sites_of(2)}
        first = hub.begin(60)
        queue = deque((name, first) for name in sites for _ in range(copies))
        steps = posts = 0
        while queue and steps < 500:
            steps += 1
            to, message = queue.popleft()
            if to == "hub":
                twice = 2 if doubled and steps % doubled == 0 else 1
                queue += [(message.site, hub.take(message))] * twice
                found = hub.top()
                if not found.certain and not found.without and hub.refine() is not None:
                    queue += [(name, hub.ask(name)) for name in sites]
                continue
            site = sites[to]
            post = site.take(message)
            if post is None and site._as_of is None:
                post = site.post(counts[to], 60)
            if post is not None:
                posts += 1
                queue.append(("hub", post))
        assert not queue
        assert posts <= 8 * copies
        assert hub.top().certain
        assert hub.top().rows[0].item == "eve"

    def test_is_answered_by_the_same_post(self) -> None:
        hub, (site, _) = hub_of(1, 2), sites_of(2)
        asked = hub.begin(0)
        assert site.take(asked) is None
        post = site.post({"a": 3}, 0)
        assert site.take(asked) is post
        assert site.take(asked) is post
