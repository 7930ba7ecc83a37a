"""No caller takes a budget from the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import NOW, PARAMS, problem

from api.access.keys import Role, mint
from api.errors import RowsInFlightError
from api.service.aggregator import Aggregator
from api.service.budget import Flight, Shares
from api.service.committer import Committer


def test_a_caller_leaves_half_to_the_others() -> None:
    shares = Shares(100)
    for _ in range(30):
        if shares.fits("much", 5):
            shares.change("much", 5)
    assert shares.taken == 50
    for caller in ("b", "c"):
        for _ in range(5):
            assert shares.fits(caller, 5)
            shares.change(caller, 5)
    assert shares.taken == 100
    assert not shares.fits("d", 1)
    shares.change("much", -50)
    assert shares.fits("d", 50)  # one request of a caller may be as large as there is room


def test_one_request_is_never_too_much_if_it_is_alone() -> None:
    shares = Shares(100)
    assert shares.fits("a", 500)
    shares.change("a", 500)
    assert shares.fits("a", 500, own=500)
    assert not shares.fits("b", 1)


def test_without_keys_all_of_it_is_for_all() -> None:
    shares = Shares(100)
    shares.change(None, 90)
    assert shares.fits(None, 10)
    assert not shares.crowded(None)


def test_a_crowd_is_that_of_its_caller() -> None:
    shares = Shares(100)
    shares.change("much", 50)
    assert shares.crowded("much")
    assert not shares.crowded("little")
    shares.settle(20)  # of what was there
    assert not shares.crowded("much")
    shares.change("much", -20)
    assert shares.taken == 0


def test_rows_in_flight_have_shares() -> None:
    flight = Flight(100)
    holds = [flight.hold(25, "much") for _ in range(1)]
    holds[0].share()
    with flight.hold(25, "much"), pytest.raises(RowsInFlightError):
        flight.hold(1, "much")
    with flight.hold(75, "little"):
        assert flight.rows == 100
    holds[0].release()
    assert flight.rows == 0
    assert flight.hold(500, "much").rows == 500


@pytest.fixture
def keyed(start: Callable[..., TestClient]) -> Callable[..., Any]:
    """Post rows by a key, a stream of each."""

    def build(**settings: Any) -> Any:
        client = start(auth="keys", **settings)
        tokens = {}
        for name in ("much", "little"):
            row, tokens[name] = mint(role=Role.WRITE, scope=[name], now_us=1)
            assert client.portal is not None
            cache = client.app.state.keys  # type: ignore[attr-defined]
            client.portal.call(cache.store.put, row)
            client.portal.call(cache.reload)
            made = client.put(
                f"/v1/streams/{name}",
                json={"params": PARAMS.to_dict()},
                headers={"authorization": f"Bearer {tokens[name]}"},
            )
            assert made.status_code == 201, made.text

        def post(name: str) -> Any:
            body = {"observations": [{"value": 1, "time": NOW, "id": 1}]}
            return client.post(
                f"/v1/streams/{name}/observations?source=a",
                json=body,
                headers={"authorization": f"Bearer {tokens[name]}"},
            )

        return client, post

    return build


@pytest.mark.parametrize("what", ["queue", "backlog"])
def test_a_key_that_fills_a_queue_stops_no_other(
    keyed: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, post = keyed(queue_posts=8)
    aggregator: Aggregator = client.app.state.aggregator
    committer: Committer = aggregator._committer
    caller = post("much").request.headers["authorization"].split("_")[1]
    shares = committer._queued[False]._posts if what == "queue" else aggregator._backlog
    # Otherwise the merging of the first post counts the backlog anew in the background.
    monkeypatch.setattr(shares, "settle", lambda taken: None)
    shares.change(caller, shares.limit // 2)
    problem(post("much"), 429, "busy")
    assert post("little").status_code == 200
    shares.change(caller, -(shares.limit // 2))
    assert post("much").status_code == 200
