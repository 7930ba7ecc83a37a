"""Alerts fire and clear however a stream is fed: every aggregate by one feed, one by every feed.

One server serves the complete matrix. Each test prints how long the state took after the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from databases import new_database

from .feeds import FEEDS, PARAMS, PATH, STREAM, Send
from .key_feeds import KEY_FEEDS, KEY_PATH
from .receiver import Receiver, receiving

Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]

_WINDOW = "window(1h)"
LOW, HIGH = [10.0] * 4, [40.0] * 12

#: Alerts that are calm after LOW, fire after HIGH as well, and are calm after LOW ten times more.
AGGREGATES: dict[str, dict[str, Any]] = {
    "mean-above": {"question": "mean", "above": 25},
    "mean-above-range": {"question": "mean", "above": 25, "range": [0, 100]},
    "quantile-above": {"question": "quantile", "q": 0.5, "above": 25},
    "median-above": {"question": "median", "above": 25},
    "share-above": {"question": "share", "predicate": "v > 25", "above": 0.5},
    "rank-below": {"question": "rank", "value": 25, "below": 0.5},
    "stddev-above": {"question": "stddev", "above": 12.7},
    "group-mean-above": {"question": "mean", "of": "v * 2", "by": ["w"], "above": 50},
}
#: Alerts that fire and clear by the number of rows, and by time alone.
COUNTS: dict[str, dict[str, Any]] = {
    "count-above": {"question": "count", "above": 10},
    "count-below": {"question": "count", "below": 3},
    "where-above": {"question": "count", "where": "v > 25", "above": 10},
    "sum-above": {"question": "sum", "above": 10},
    "total-above": {"question": "total", "above": 200},
    "rate-above": {"question": "rate", "above": 10 / 6000},
    "group-above": {"question": "count", "by": ["v > 25"], "where": "w > 0", "above": 10},
}
#: One of two groups fires.
GROUPS = {"question": "count", "by": ["v > 25"], "above": 10}
#: Key counts: calm (or firing, for `below`) after FEW_KEYS, the other state after HOT_KEYS. Shares
#: are calm again after FEW_KEYS many times more.
KEY_SHARES: dict[str, dict[str, Any]] = {
    "key_share": {"question": "key_share", "key": 7, "above": 0.5},
    "top_key_share": {"question": "top_key_share", "above": 0.5},
}
KEY_COUNTS: dict[str, dict[str, Any]] = {
    "key_count": {"question": "key_count", "key": 7, "above": 20},
    "key_total": {"question": "key_total", "above": 30},
    "self_join": {"question": "self_join", "above": 400},
    "key_count-below": {"question": "key_count", "key": 7, "below": 5},
}
FEW_KEYS: list[float] = [1, 2, 3, 4, 5, 6, 8, 9] * 2
HOT_KEYS: list[float] = [7] * 40


class Served:
    """A server with an empty stream for each test."""

    def __init__(
        self, process: Any, http: httpx2.Client, receiver: Receiver, path: str = PATH
    ) -> None:
        self.process, self.http, self.receiver, self.path = process, http, receiver, path
        self.url = str(http.base_url).rstrip("/")

    def define(self, name: str, **spec: Any) -> dict[str, Any]:
        form = {"kind": "threshold", "decay": _WINDOW, "webhook": self.receiver.url} | spec
        answer = self.http.put(f"{self.path}/monitors/{name}", json=form)
        assert answer.status_code in (200, 201), answer.text
        found: dict[str, Any] = answer.json()
        return found

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"{self.path}/monitors/{name}").json()
        return found

    def history(self, name: str, group: str | None = None) -> list[dict[str, Any]]:
        path = f"{self.path}/monitors/{name}/history"
        params = {} if group is None else {"group": group}
        found: list[dict[str, Any]] = self.http.get(path, params=params).json()["states"]
        return found

    def of_keys(self) -> Served:
        """The same server, with the stream of key counts."""
        return Served(self.process, self.http, self.receiver, KEY_PATH)


def until(check: Callable[[], Any], what: str) -> Any:
    """Wait for a result that is true. The limit is for what hangs."""
    deadline = time.monotonic() + 600
    while not (found := check()):
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.02)
    return found


def becomes(served: Served, name: str, state: str) -> float:
    """Wait for a state; how long that took."""
    began = time.monotonic()
    until(lambda: served.state(name)["state"] == state, f"{state} of {name}: {served.state(name)}")
    return time.monotonic() - began


def states(served: Served, name: str) -> list[str]:
    """All states in the history: those that lasted for a moment, too."""
    return [each["state"] for each in served.history(name)]


def group_states(served: Served) -> dict[bool, str]:
    groups = served.state("groups")["groups"]
    return {each["by"]["v > 25"]: each["state"] for each in groups}


def delivered(served: Served, name: str, *statuses: str) -> None:
    until(lambda: served.receiver.statuses(name) == [*statuses], f"webhook of {name}")


@pytest.fixture(scope="module")
def module_server(one_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("alerts")
    with (
        receiving() as receiver,
        one_server(folder / "data.sqlite3", *receiver.options(folder)) as (process, http),
    ):
        yield Served(process, http, receiver)


@pytest.fixture
def served(module_server: Served) -> Iterator[Served]:
    module_server.receiver.messages.clear()
    yield module_server
    for path in (PATH, KEY_PATH):
        assert module_server.http.delete(path).status_code in (204, 404)


def test_every_aggregate_fires_and_clears_by_data(served: Served, tmp_path: Path) -> None:
    with FEEDS["observations"](served.http, served.url, tmp_path) as send:
        send(LOW)
        for name, spec in AGGREGATES.items():
            found = served.define(name, **spec)
            assert (found["state"], found["sites"], found["silent"]) == ("calm", [], []), found
        lags = [*_turns(served, send, HIGH, "firing"), *_turns(served, send, 10 * LOW, "calm")]
    for name in AGGREGATES:
        delivered(served, name, "firing", "resolved")
        assert [each["state"] for each in served.history(name)[-3:]] == ["calm", "firing", "calm"]
    print(f"{len(AGGREGATES)} aggregates: {max(lags):.2f} s at most")


def _turns(served: Served, send: Send, values: list[float], state: str) -> Iterator[float]:
    send(values)
    began = time.monotonic()
    for name in AGGREGATES:
        becomes(served, name, state)
        yield time.monotonic() - began


def test_counts_fire_and_clear_by_time_alone(served: Served, tmp_path: Path) -> None:
    with FEEDS["observations"](served.http, served.url, tmp_path) as send:
        for name, spec in COUNTS.items():
            calm = "firing" if name == "count-below" else "calm"
            assert served.define(name, **spec | {"decay": "window(6s)"})["state"] == calm
        sent = time.time()
        send(HIGH)
        for name in COUNTS:  # and nothing arrives any more
            turns = ["calm", "firing"] if name == "count-below" else ["firing", "calm"]
            until(lambda name=name, turns=turns: states(served, name)[-2:] == turns, "history")
    lags = []
    for name in COUNTS:
        rises, falls = (each["since"] for each in served.history(name)[-2:])
        lags.append((rises - sent, falls - sent - 6))
        assert falls - sent > 5.9  # not before the readings left the window
        statuses = ("firing", "resolved")
        delivered(served, name, *statuses, *statuses[: name == "count-below"])
    print("by data, by time alone, s:", [tuple(round(x, 2) for x in each) for each in lags])


@pytest.mark.parametrize("feed", FEEDS)
def test_an_alert_fires_and_clears_by_every_feed(served: Served, tmp_path: Path, feed: str) -> None:
    with FEEDS[feed](served.http, served.url, tmp_path) as send:
        served.define("hot", question="mean", above=25, range=[0, 100])
        served.define("few", question="count", below=10)
        becomes(served, "few", "firing")
        send(LOW)
        until(lambda: served.state("hot")["value"] == 10.0, "reading")
        becomes(served, "hot", "calm")
        send(HIGH)
        lags = [becomes(served, "hot", "firing"), becomes(served, "few", "calm")]
        sites = [each["source"] for each in served.state("hot")["sites"]]
        assert sites == (["gateway"] if feed == "sensor with monitors" else [])
        send(10 * LOW)
        lags.append(becomes(served, "hot", "calm"))
        delivered(served, "hot", "firing", "resolved")
        delivered(served, "few", "firing", "resolved")
    print(f"{feed}: {max(lags):.2f} s at most after the data was sent")


@pytest.mark.parametrize("feed", KEY_FEEDS)
def test_alerts_of_keys_fire_and_clear_by_every_feed(
    served: Served, tmp_path: Path, feed: str
) -> None:
    served = served.of_keys()
    with KEY_FEEDS[feed](served.http, served.url, tmp_path) as send:
        send(FEW_KEYS)
        specs = KEY_SHARES | KEY_COUNTS
        before = {name: "firing" if "below" in specs[name] else "calm" for name in specs}
        after = {name: "calm" if "below" in specs[name] else "firing" for name in specs}
        for name, spec in specs.items():
            served.define(name, **spec)
            becomes(served, name, before[name])
        send(HOT_KEYS)
        lags = [becomes(served, name, after[name]) for name in specs]
        send(20 * FEW_KEYS)
        lags += [becomes(served, name, "calm") for name in KEY_SHARES]
    for name in specs:
        cleared = name in KEY_SHARES or before[name] == "firing"
        delivered(served, name, "firing", *(["resolved"] if cleared else []))
    print(f"{feed}, keys: {max(lags):.2f} s at most after the data was sent")


def test_alerts_of_keys_clear_by_time_alone(served: Served, tmp_path: Path) -> None:
    served = served.of_keys()
    with KEY_FEEDS["observations"](served.http, served.url, tmp_path) as send:
        for name in ("key_count", "key_share"):
            spec = (KEY_SHARES | KEY_COUNTS)[name]
            assert served.define(name, **spec, decay="window(6s)")["state"] == "calm"
        send(HOT_KEYS)
        for name in ("key_count", "key_share"):
            delivered(served, name, "firing", "resolved")
            assert [each["state"] for each in served.history(name)[-2:]] == ["firing", "calm"]


@pytest.mark.parametrize("sites", [None, [], ["a"]])
def test_a_list_of_sites_does_not_wait_for_sources_that_post(
    served: Served, tmp_path: Path, sites: list[str] | None
) -> None:
    with FEEDS["sketches"](served.http, served.url, tmp_path) as send:
        send(HIGH)
        found = served.define("hot", question="mean", above=25, sites=sites)
        assert (found["state"], found["silent"]) == ("firing", [])
        expected = served.define("expected", question="mean", above=25, sites=["never-heard-of"])
        assert (expected["state"], expected["silent"]) == ("uncertain", ["never-heard-of"])
        assert "never-heard-of" in expected["explanation"]


def test_what_fired_is_told_after_a_kill(one_server: Server, tmp_path: Path) -> None:
    data = tmp_path / "data.sqlite3"
    with receiving() as receiver:
        receiver.accepts = False
        with one_server(data, *receiver.options(tmp_path)) as (process, http):
            served = Served(process, http, receiver)
            with FEEDS["sketches"](http, served.url, tmp_path) as send:
                served.define("hot", question="mean", above=25)
                send(HIGH)
                becomes(served, "hot", "firing")
                before = served.history("hot")
                served.define("groups", **GROUPS)
                becomes(served, "groups", "firing")
            keys = served.of_keys()
            with KEY_FEEDS["sketches"](http, served.url, tmp_path) as send:
                keys.define("hot-key", **KEY_SHARES["key_share"])
                send(HOT_KEYS)
                becomes(keys, "hot-key", "firing")
            until(lambda: receiver.refused, "attempt to deliver")
            process.kill()
        receiver.accepts = True
        with one_server(data, *receiver.options(tmp_path)) as (process, http):
            served = Served(process, http, receiver)
            delivered(served, "hot", "firing")
            assert served.history("hot") == before
            delivered(served, "groups", "firing")
            with FEEDS["sketches"](http, served.url, tmp_path) as send:
                send(50 * LOW)
                becomes(served, "hot", "calm")
            delivered(served, "hot", "firing", "resolved")
            assert served.history("hot")[:-2] == before[:-1]
            until(lambda: {*group_states(served).values()} == {"firing"}, "both groups")
            (kept,) = served.history("groups", '{"v > 25": true}')
            assert (kept["state"], kept["until"]) == ("firing", None)  # of before the kill
            keys = served.of_keys()
            with KEY_FEEDS["sketches"](http, served.url, tmp_path) as send:
                send(20 * FEW_KEYS)
                becomes(keys, "hot-key", "calm")
            delivered(keys, "hot-key", "firing", "resolved")


def test_two_replicas_agree(one_server: Server, tmp_path: Path) -> None:
    database = new_database("postgresql", tmp_path)
    with receiving() as receiver:
        options = receiver.options(tmp_path)
        with one_server(tmp_path / "one", *options, "--data", database.url) as first:
            one = Served(*first, receiver)
            with one_server(tmp_path / "two", *options, "--data", database.url) as second:
                two = Served(*second, receiver)
                with FEEDS["sketches"](one.http, one.url, tmp_path) as send:
                    one.define("hot", question="mean", above=25)
                    send(HIGH)
                    one.define("groups", **GROUPS)
                    for each in (one, two):
                        becomes(each, "hot", "firing")
                        until(lambda each=each: group_states(each) == {True: "firing"}, "group")
                    keys = [each.of_keys() for each in (one, two)]
                    with KEY_FEEDS["sketches"](one.http, one.url, tmp_path) as send_keys:
                        keys[0].define("hot-key", **KEY_SHARES["key_share"])
                        send_keys(HOT_KEYS)
                        for each in keys:
                            becomes(each, "hot-key", "firing")
                    second[0].kill()  # which of the two had written and told it is no matter
                    send(50 * LOW)
                    becomes(one, "hot", "calm")
            with one_server(tmp_path / "two", *options, "--data", database.url) as third:
                again = Served(*third, receiver)
                assert again.history("hot") == one.history("hot")
                delivered(one, "hot", "firing", "resolved")
                until(lambda: group_states(again) == {True: "firing", False: "firing"}, "groups")
                of_group = [each.history("groups", '{"v > 25": true}') for each in (one, again)]
                assert of_group[0] == of_group[1]
                states = [each["state"] for each in again.history("hot")]
    assert states == ["uncertain", "calm", "firing", "calm"]


def test_the_history_is_asked_for_by_time(served: Served, tmp_path: Path) -> None:
    with FEEDS["sketches"](served.http, served.url, tmp_path) as send:
        send(HIGH)
        served.define("hot", question="mean", above=25)
        path = f"{PATH}/monitors/hot/history"
        whole = served.http.get(path).json()
        assert (whole["complete"], whole["states"][-1]["until"]) == (True, None)
        assert "is 40, at or above the threshold 25" in whole["states"][-1]["explanation"]
        last = served.http.get(path, params={"limit": 1}).json()
        assert (last["complete"], last["states"]) == (False, whole["states"][-1:])
        assert served.http.get(path, params={"from": "1h"}).json() == whole
        before = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"}
        assert served.http.get(path, params=before).json()["states"] == []
        for wrong in ({"from": "x"}, {"to": "1 fortnight"}, {"from": "1e99"}, {"limit": 0},
                      {"from": "10", "to": "9"}):  # fmt: skip
            assert served.http.get(path, params=wrong).status_code == 422
        assert served.http.get(f"{PATH}/monitors/none/history").status_code == 404
    assert (STREAM, PARAMS.time_unit) == ("ward", "ms")
