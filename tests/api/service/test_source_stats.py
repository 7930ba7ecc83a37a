"""What a process knows of who posts: late, silent, refused; and how much of it is kept."""

from __future__ import annotations

import pytest

from api.service import source_stats as module
from api.service.source_stats import KNOWN_POSTS, LATE_S, SILENT_GAPS, SILENT_S, Sender, Senders

S = 1_000_000


@pytest.mark.parametrize(
    ("late_s", "at"), [(-5.0, 0), (0.0, 0), (1.0, 0), (1.1, 1), (59.0, 2), (1e9, len(LATE_S))]
)
def test_a_post_is_counted_by_how_late_it_was(late_s: float, at: int) -> None:
    sender = Sender()
    sender.take(7 * S, late_s)
    assert [i for i, posts in enumerate(sender.late) if posts] == [at]
    assert sum(sender.late) == sender.posts == 1


def test_the_least_lateness_bounds_the_clock_and_the_latest_is_told_beside() -> None:
    sender = Sender()
    for late_s in (4.0, -2.5, 30.0):
        sender.take(0, late_s)
    sender.take(0, None)  # of a stream without a clock
    assert (sender.least_late_s, sender.latest_late_s) == (-2.5, 30.0)
    assert (sender.posts, sum(sender.late)) == (4, 3)


def test_silent_is_who_is_quiet_for_unusually_long() -> None:
    sender = Sender()
    assert sender.is_silent(10**15) is None
    sender.take(0, 0.0)
    assert sender.is_silent(10**15) is None  # nobody knows how often it posts
    for second in range(60, 601, 60):
        assert (sender.is_silent(10**15) is None) == (sender.posts < KNOWN_POSTS)
        sender.take(second * S, 0.0)
    assert sender.gap_s == 60.0
    last = 600
    assert sender.is_silent((last + 60 * SILENT_GAPS) * S) is False
    assert sender.is_silent((last + 60 * SILENT_GAPS + 1) * S) is True
    often = Sender()
    for tenth in range(20):
        often.take(tenth * S // 10, 0.0)
    assert often.is_silent(round((1.9 + SILENT_S - 0.1) * S)) is False
    assert often.is_silent(round((1.9 + SILENT_S + 0.1) * S)) is True


def test_the_usual_gap_follows_what_is_usual_now() -> None:
    sender = Sender()
    for second in [0, 1, 2, 3, *range(100, 10_000, 100)]:
        sender.take(second * S, 0.0)
    assert sender.gap_s == pytest.approx(100, rel=1e-3)


def test_a_clock_that_goes_back_makes_no_gap_less_than_none() -> None:
    sender = Sender()
    sender.take(10 * S, 0.0)
    sender.take(4 * S, 0.0)
    assert sender.gap_s == 0.0


def test_made_up_names_take_the_place_of_nobody_who_posts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 16)
    senders = Senders(0)
    senders.took((1, "honest"), 0, 1.0)
    for number in range(100):
        senders.refuse((1, f"made-up-{number}"), "corrupt-sketch", 1, number)
    kept = senders.of_stream(1)
    assert set(kept) == {"honest", "made-up-98", "made-up-99"}
    assert senders.refused == {"corrupt-sketch": 100}
    for number in range(20):
        senders.took((2, f"s-{number}"), 0, 1.0)
    assert "honest" not in senders.of_stream(1)
    assert len(senders.of_stream(2)) == 16


def test_who_was_refused_first_keeps_that_when_it_posts() -> None:
    senders = Senders(0)
    senders.refuse((1, "a"), "clock-ahead", 2, 5)
    senders.took((1, "a"), 9, 0.0)
    senders.refuse((1, "a"), "corrupt-sketch", 1, 10)
    (sender,) = senders.of_stream(1).values()
    assert (sender.refused, sender.refused_us, sender.posts) == (
        {"clock-ahead": 2, "corrupt-sketch": 1}, 10, 1,
    )  # fmt: skip
    assert senders.of_stream(2) == {}


def test_sources_are_listed_by_stream_and_forgotten_with_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 16)
    senders = Senders(0)
    senders.refuse((1, ""), "r", 1, 0)
    senders.refuse((1, "b"), "r", 1, 0)
    for name in "cab":
        senders.took((1, name), 0, None)
    senders.took((2, "z"), 0, None)
    assert senders.names_after(1, "", 9) == ["a", "b", "c"]
    assert senders.names_after(1, "a", 1) == ["b"]
    assert sorted(senders.of_stream(1)) == ["", "a", "b", "c"]
    assert senders.of_stream(1)["b"].refused == {"r": 1}
    for number in range(16):
        senders.took((3, f"{number:02}"), 0, None)
    assert senders.of_stream(1).keys() == {""}
    assert senders.names_after(2, "", 9) == []
    for number in range(2):
        senders.refuse((4, str(number)), "r", 1, 0)
    assert senders.of_stream(1) == {}
    assert senders._names.keys() == {3, 4}
