"""The page of a stream whose devices are watched: who is silent, and what each said last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import patient, picture, serving, sync_api

axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

NEWEST = 1_750_000_000
HEARD = {"t-1": (21.5, 40), "t-2": (18.0, 5_000), "t-3": (19.25, 90_000), "t-4": (20.0, 600)}


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_shows_who_is_silent_and_what_each_said_last(
    tmp_path: Path, browser: Any, theme: str, width: int
) -> None:
    rows = [
        {"id": [device, age], "time": NEWEST - age, "value": value}
        for device, (value, age) in HEARD.items()
    ]
    with serving(tmp_path / "data.sqlite3") as (url, http):
        created = {"params": {"time_unit": "s"}, "views": {"devices": {"id": 0}}}
        http.put("/v1/streams/ward", json=created).raise_for_status()
        http.put("/v1/streams/bare", json={"params": {"time_unit": "s"}}).raise_for_status()
        for stream in ("ward", "bare"):
            http.post(
                f"/v1/streams/{stream}/observations?source=a", json={"observations": rows}
            ).raise_for_status()
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        page = patient(context)
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.goto(f"{url}/#stream=ward")
        expect = sync_api.expect
        shown = page.locator("#devices tbody tr")
        expect(shown).to_have_count(2)
        expect(shown.nth(0)).to_contain_text("t-3")  # the longest silent first
        expect(shown.nth(0)).to_contain_text("19.25")
        expect(shown.nth(0)).to_contain_text("2025-06-14 14:06:40")
        expect(shown.nth(1)).to_contain_text("t-2")
        expect(page.locator("[data-devices=active] dd")).to_have_text("2")
        expect(page.locator("[data-devices=silent] dd")).to_have_text("2")
        page.select_option("#devices-listed", "latest")
        expect(shown).to_have_count(4)
        expect(shown.nth(0)).to_contain_text("t-1")
        picture(page.locator("#devices-panel"), f"devices-{theme}-{width}.png")
        violations = axe_playwright.Axe().run(page).response["violations"]
        assert [each["id"] for each in violations] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        rows_fit = "box => box.scrollWidth <= box.clientWidth"
        assert page.eval_on_selector("#devices .scroll", rows_fit)
        assert (shown.nth(0).bounding_box() or {})["height"] < 40  # one line
        page.select_option("#devices-width", "10min")
        expect(page.locator("[data-devices=active] dd")).to_have_text("2")
        page.select_option("#devices-width", "1d")
        expect(page.locator("[data-devices=silent] dd")).to_have_text("1")
        of_one = patient(context)
        of_one.goto(f"{url}/#stream=ward&source=a")
        expect(of_one.locator("#source-says")).to_contain_text("of all sources together")
        expect(of_one.locator("#devices-panel")).to_be_hidden()
        expect(page.locator("#source-says")).to_be_hidden()
        other = patient(context)
        other.goto(f"{url}/#stream=bare")
        expect(other.locator("#stream-name")).to_have_text("bare")
        expect(other.locator("#devices-panel")).to_be_hidden()
        assert not faults
        context.close()
