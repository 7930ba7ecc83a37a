"""Alerts per group of a stream with columns, on every interface."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from service import LOCAL
from typer.testing import CliRunner

from api.app import create_app
from api.monitors.engine import Monitors
from api.settings import Settings
from decaysketch.cli import app as command
from decaysketch.client import admin as client_admin

pytestmark = pytest.mark.anyio
PATH = "/v1/streams/fleet"
COLUMNS = {"temp": "float64", "site": "text", "fw": "text"}
SPEC = {
    "kind": "threshold", "question": "mean", "of": "temp", "by": ["site", "fw"], "above": 30,
    "where": "temp > 0", "decay": "window(1h)",
}  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_every_interface_shows_the_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(Settings(data=str(tmp_path / "data")))
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url=LOCAL) as client,
    ):
        form = {"params": {"columns": COLUMNS, "time_unit": "s"}}
        assert (await client.put(PATH, json=form)).status_code == 201
        path = f"{PATH}/monitors/hot"
        for change, named in (
            ({"of": None}, "of='temp'"),
            ({"by": ["sit"]}, "sit"),
            ({"where": "temp >"}, "where"),
            ({"question": "share", "of": None, "predicate": "v > 3", "above": 0.5}, "mean"),
            ({"question": "sum"}, "of"),
        ):
            refused = await client.put(path, json=SPEC | change)
            assert refused.status_code == 422
            assert named in refused.text
        assert (await client.put(path, json=SPEC)).status_code == 201
        rows = [
            {
                "id": k,
                "time": int(time.time()),
                "columns": {"temp": temp, "site": site, "fw": "2.1"},
            }
            for k, (temp, site) in enumerate([(40, "a"), (35, "a"), (20, "b"), (-300, "a")])
        ]
        posted = await client.post(f"{PATH}/observations?source=gw", json={"observations": rows})
        assert posted.status_code == 200, posted.text
        await app.state.monitors.look()
        found = (await client.get(path)).json()
        await _check_answers(client, path, found, app.state.monitors)
    _check_command(monkeypatch, found)


async def _check_answers(
    client: httpx2.AsyncClient, path: str, found: dict[str, Any], monitors: Monitors
) -> None:
    assert (found["state"], found["alert"]["phase"]) == ("firing", "firing")
    assert found["group_counts"] == {
        "firing": 1, "uncertain": 0, "calm": 1, "untracked": 0, "untracked_firing": 0,
    }  # fmt: skip
    assert found["explanation"] == "1 group has reached the threshold 30: site=a, fw=2.1."
    hot, calm = found["groups"]
    assert (hot["by"], hot["value"], hot["rows"]) == ({"site": "a", "fw": "2.1"}, 37.5, 2)
    assert (calm["by"]["site"], calm["state"]) == ("b", "calm")
    sentence = "The mean of temp for site=a, fw=2.1 where temp > 0 is 37.5, at or above the "
    assert hot["explanation"] == f"{sentence}threshold 30."
    asked = {"group": json.dumps(hot["by"])}
    states = (await client.get(f"{path}/history", params=asked)).json()["states"]
    assert [(each["state"], each["value"]) for each in states] == [("firing", 37.5)]
    assert (await client.get(f"{path}/history", params={"group": "a"})).status_code == 422
    labels = '{fw="\\"2.1\\"",monitor="hot",site="a",stream="fleet"}'
    metrics = (await client.get("/metrics")).text
    assert f"decaysketch_monitor_group_alert{labels} 2.0" in metrics
    assert f"decaysketch_monitor_group_value{labels} 37.5" in metrics
    assert 'decaysketch_monitor_groups_untracked{monitor="hot",stream="fleet"} 0.0' in metrics
    (glance,) = (await client.get("/v1/monitors")).json()["monitors"]
    assert glance["group_counts"] == found["group_counts"]


def _check_command(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]) -> None:
    monkeypatch.setattr(client_admin.Admin, "get_monitor", lambda *_: found)
    shown = CliRunner().invoke(command, ["monitor", "groups", LOCAL, "fleet", "hot"])
    assert shown.exit_code == 0, shown.output
    assert "site=a, fw=2.1" in shown.output
