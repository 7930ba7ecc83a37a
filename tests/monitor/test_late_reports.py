"""Reports about frequent items that arrive after the hub has dropped the item."""

from __future__ import annotations

from decaysketch.monitor.frequent import FrequentHub, ItemAnswer, ItemReport

CELLS = (0, 1)


def hub_of() -> FrequentHub:
    return FrequentHub(["a", "b"], threshold=5.0, theta=0.5)  # 3.75 without messages


def report(site: str, seq: int, estimate: float, *, polled: bool = False) -> ItemReport:
    side = "still" if polled else "below"
    return ItemReport(site, 1, seq, "item", estimate, side, estimate if polled else 3.75, polled)


def test_a_copy_of_an_old_report_brings_no_item_back() -> None:
    hub = hub_of()
    old = report("a", 1, 4.0)
    (found,) = hub.receive(report("a", 2, 2.0), CELLS, 0.0)
    assert found == ("a", ItemAnswer(1, 2, "item", "below", 3.75))
    restored = FrequentHub.resumed(5.0, 0.5, hub.saved())
    for each in (hub, restored):
        assert each.receive(old, CELLS, 1.0) == []
        assert len(each) == 0


def test_an_old_report_answers_no_poll_about_the_item_anew() -> None:
    hub = hub_of()
    old = report("a", 1, 3.0, polled=True)  # from a poll in the item's earlier life
    hub.receive(report("a", 2, 0.0), CELLS, 0.0)
    hub.receive(report("b", 1, 4.0), CELLS, 1.0)
    assert [each.item for each in hub.messages_for("a")] == ["item"]
    hub.receive(old, CELLS, 2.0)
    assert hub.messages_for("a")
    assert not hub.frequent
    hub.receive(report("a", 3, 2.0, polled=True), CELLS, 3.0)
    assert hub.frequent == {"item"}
