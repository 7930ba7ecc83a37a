"""Monitors defined, listed, watched and deleted, in Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
from client.faults import PARAMS, Aggregator
from client.test_sites import spec
from typer.testing import CliRunner

from decaysketch import decay
from decaysketch.cli import app
from decaysketch.client import Admin, ClientError
from decaysketch.client.retrying_client import PostRefusedError
from decaysketch.monitor import Threshold


def test_the_life_of_a_monitor(served: Aggregator) -> None:
    served.create("watched", params=PARAMS.to_dict())
    threshold = Threshold("count", above=50, decay=decay.exponential(half_life=600), sites=("a",))
    with Admin(served.url, trust_env=False) as admin:
        state = admin.put_monitor("watched", "m", threshold)
        assert (state["state"], state["reason"]) == ("uncertain", "silent")
        assert admin.get_monitor("watched", "m")["epoch"] == state["epoch"]
        assert [each["monitor"] for each in admin.list_monitors("watched")] == ["m"]
        history = admin.monitor_history("watched", "m", start="1h", limit=1)
        assert (history["complete"], len(history["states"])) == (True, 1)
        assert history["states"][0]["explanation"] == "The monitor was defined."
        with pytest.raises(PostRefusedError, match="from"):
            admin.monitor_history("watched", "m", start="yesterday")
        events = admin.watch("watched")
        event = next(events)
        assert (event.monitor, event.state, event.silent) == ("m", "uncertain", ("a",))
        assert (event.threshold, event.alert) == (50, "inactive")
        assert event.explanation == "1 source has not reported within 30 s: a."
        assert admin.delete_monitor("watched", "m")
        while (event := next(events)).state != "gone":
            pass
        assert event.monitor == "m"
        events.close()  # type: ignore[attr-defined]
        assert not admin.delete_monitor("watched", "m")
        with pytest.raises(PostRefusedError, match="within"):
            admin.put_monitor("watched", "m", spec() | {"within": 2})
        with pytest.raises(PostRefusedError, match="404"):
            next(admin.watch("nowhere"))


def test_watching_connects_again_and_reads_what_is_one(tmp_path: Path) -> None:
    answers = iter([
        httpx2.Response(503, headers={"retry-after": "7"}),
        httpx2.Response(200, headers={"content-type": "text/html"}, text="<p>a portal</p>"),
        _events('event: state\ndata: {"monitor": "m", "state": "calm", "silent": []}\n\n'),
        _events(
            'event: topk\ndata: {"topk": "t"}\n\nevent: gone\ndata: {"topk": "t"}\n\n'
            'event: gone\ndata: {"function": "f"}\n\n'
            'event: gone\ndata: {"monitor": "m"}\n\nevent: state\ndata: [1]\n\n'
        ),
    ])  # fmt: skip
    waits: list[float] = []
    transport = httpx2.MockTransport(lambda _: next(answers))
    with Admin("http://test", transport=transport, wait=waits.append) as admin:
        events = admin.watch("s")
        assert [next(events).state for _ in range(2)] == ["calm", "gone"]
        assert len(waits) == 3
        assert waits[0] >= 7
        with pytest.raises(ClientError, match="not an object"):
            next(events)


def _events(text: str) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=text)


def test_a_stream_is_described_in_python_and_on_the_command_line(served: Aggregator) -> None:
    served.create("described", params=PARAMS.to_dict())

    def run(*arguments: str) -> dict[str, str | None]:
        result = CliRunner().invoke(
            app, ["describe", served.url, "described", *arguments, "--json"]
        )
        assert result.exit_code == 0, result.output
        return json.loads(result.output)  # type: ignore[no-any-return]

    with Admin(served.url, trust_env=False) as admin:
        before = admin.stream("described")
        state = admin.describe_stream("described", unit="°C", description="Room temperature")
        assert state["params"] == before["params"]
        assert run() == {"unit": "°C", "description": "Room temperature"}
        assert run("--unit", "") == {"unit": None, "description": "Room temperature"}
        with pytest.raises(PostRefusedError, match="unit"):
            admin.describe_stream("described", unit="x" * 41)


def test_on_the_command_line(served: Aggregator, tmp_path: Path) -> None:
    served.create("commanded", params=PARAMS.to_dict())
    where, file = [served.url, "commanded"], tmp_path / "spec.json"

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["monitor", *arguments])
        return result.exit_code, result.output

    file.write_text(json.dumps(spec() | {"sites": ["a"]}))
    code, text = run("put", *where, "m", str(file), "--json")
    assert (code, json.loads(text)[0]["monitor"]) == (0, "m")
    code, text = run("list", *where)
    assert code == 0
    assert "uncertain" in text
    code, text = run("watch", *where, "--events", "1")
    assert (code, text.startswith("m: uncertain. 1 source has not reported")) == (0, True)
    code, text = run("history", *where, "m", "--from", "1h")
    assert (code, "The monitor was" in text) == (0, True)
    code, text = run("history", *where, "m", "--json")
    assert (code, json.loads(text)[0]["state"]) == (0, "uncertain")
    assert run("history", *where, "none")[0] == 1
    assert run("delete", *where, "m")[0] == 0
    code, text = run("delete", *where, "m")
    assert (code, "has no monitor" in text) == (1, True)
    file.write_text("[")
    assert run("put", *where, "m", str(file))[0] == 1
