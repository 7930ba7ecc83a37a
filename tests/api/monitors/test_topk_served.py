"""A top-k list over sockets: two processes over one database, sites that fall silent, a kill."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from service import PARAMS

from decaysketch.client.posting import PostRefusedError
from decaysketch.client.topk import TopKSensor

Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]

PATH = "/v1/streams/s/topk/talkers"
SPEC = {"k": 2, "decay": "window(1h)", "sites": ["a", "b", "c"], "round_s": 1}
COUNTS = {
    "a": {"x": 9, "y": 5, "p": 4, "q": 1},
    "b": {"z": 8, "y": 5, "p": 3, "r": 1},
    "c": {"u": 7, "y": 5, "p": 3, "s": 1},
}


def test_the_life_of_a_list(server: Server, tmp_path: Path) -> None:
    data, now = tmp_path / "data.sqlite3", int(time.time())
    with ExitStack() as stack:
        process, one = stack.enter_context(server(data))
        _, other = stack.enter_context(server(data))
        assert one.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).status_code == 201
        assert one.put(PATH, json=SPEC).status_code == 201
        sites = {}
        for (name, counts), client in zip(COUNTS.items(), (one, other, one), strict=True):
            sites[name] = TopKSensor(client, "s", "talkers", name)
            for item, count in counts.items():
                sites[name].update([item] * count, [now - 9] * count)
        stranger = TopKSensor(other, "s", "talkers", "d")
        with pytest.raises(PostRefusedError, match="not one of the 3 sources"):
            _until(lambda: stranger.step() and None)

        def said(client: httpx2.Client, without: list[str], after: int = 0) -> Any:
            """Drive the sites that are not silent until a later list is certain."""

            def look() -> Any:
                for name in COUNTS.keys() - set(without):
                    sites[name].step()
                found = client.get(PATH).json()["found"]
                later = found is not None and found["as_of"] > after
                done = later and found["without"] == without and found["certain"]
                return found if done else None

            return _until(look)

        found = said(other, [])
        assert [(row["item"], row["lower"]) for row in found["rows"]] == [("y", 15), ("p", 10)]
        found = said(one, ["c"], found["as_of"])
        assert [(row["item"], row["lower"]) for row in found["rows"]] == [("y", 10), ("x", 9)]

        process.kill()
        process.wait()
        assert not sites["a"].step()  # and nothing is lost by it
        _, again = stack.enter_context(server(data))
        assert again.get(PATH).json()["found"]["as_of"] >= found["as_of"]
        # What a site has lost it says nothing of, as long as a window reaches back to it.
        sites["c"] = TopKSensor(again, "s", "talkers", "c", counting_since=now)
        for _ in range(3):
            assert sites["c"].step()
        for name in "ac":
            sites[name] = TopKSensor(again, "s", "talkers", name)
            for item, count in COUNTS[name].items():
                sites[name].update([item] * count, [now - 9] * count)
        found = said(other, [], found["as_of"])
        assert [(row["item"], row["lower"]) for row in found["rows"]] == [("y", 15), ("p", 10)]


def _until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 600  # for what hangs
    while (found := look()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
