"""The page of a stream of extremes: two figures, and no chart of a past that is not kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.extremes import ExtremesParams, ExtremesSketch
from tests.page.conftest import patient, serving, sync_api

OCTETS = {"content-type": "application/octet-stream"}
NEWEST = 1_750_000_000


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_shows_the_largest_and_the_least_and_no_past(
    tmp_path: Path, browser: Any, theme: str
) -> None:
    sketch = ExtremesSketch(ExtremesParams())
    draw = np.random.default_rng(3)
    sketch.update(np.round(draw.normal(20, 4, 3_000), 2), 1, NEWEST - np.arange(3_000))
    with serving(tmp_path / "data.sqlite3") as (url, http):
        created = {"family": "extremes", "params": sketch.params.to_dict()}
        http.put("/v1/streams/room", json=created).raise_for_status()
        posted = http.post(
            "/v1/streams/room/sketches",
            params={"source": "a"}, content=sketch.to_bytes(), headers=OCTETS,
        )  # fmt: skip
        posted.raise_for_status()
        context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=theme)
        page = patient(context)
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.goto(f"{url}/#stream=room")
        expect = sync_api.expect
        for name, ask in (("max", sketch.max), ("min", sketch.min)):
            figure = page.locator(f"[data-figure={name}]")
            expect(figure).to_contain_text("value")
            shown = figure.evaluate("each => ({...each.dataset})")
            asked = ds.decay.parse(shown["decay"], "s")
            assert float(shown["value"]) == ask(asked, now=int(shown["now"])).value
        expect(page.locator("#count-panel")).to_contain_text("there is no past to draw")
        expect(page.locator("#quantile-panel")).to_be_hidden()
        expect(page.locator("#hitters-panel")).to_be_hidden()
        expect(page.locator('tr[data-stream="room"] .spark-cell')).to_contain_text("the present")
        assert not faults
        context.close()
