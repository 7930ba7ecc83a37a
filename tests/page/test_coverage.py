"""The page of what each source heard: heatmap, exclusive bars, and the range with its caveat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest

import decaysketch as ds
from tests.page.conftest import OCTETS, patient, picture, serving, sync_api

axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

NEWEST = 1_750_000_000
RATES = {"gw-north": 0.9, "gw-south": 0.6, "gw-roof": 0.3, "gw-cellar": 0.06}


def post(http: Any) -> None:
    """Four gateways, one of which was down for a day."""
    params = ds.SketchParams(capacity=400, seed=3, time_unit="s")
    http.put("/v1/streams/field", json={"params": params.to_dict()}).raise_for_status()
    rng = np.random.default_rng(1)
    times = np.sort(NEWEST - rng.integers(0, 5 * 86_400, 8_000))
    times[-1] = NEWEST
    for name, rate in RATES.items():
        heard = rng.random(len(times)) < rate
        if name == "gw-south":
            heard &= (times < NEWEST - 3 * 86_400) | (times > NEWEST - 2 * 86_400)
        rows = np.flatnonzero(heard)
        sketch = ds.DecaySketch(params)
        sketch.update(None, 1, times[rows], rows)
        http.post(
            f"/v1/streams/field/sketches?source={name}", content=sketch.to_bytes(), headers=OCTETS
        ).raise_for_status()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("coverage") / "data.sqlite3") as (url, http):
        post(http)
        created = {"family": "extremes", "params": {"capacity": 8, "time_unit": "s"}}
        http.put("/v1/streams/ends", json=created).raise_for_status()
        yield url


def test_every_drawing_agrees_with_the_service(url: str, browser: Any) -> None:
    answer = httpx2.get(f"{url}/v1/streams/field/coverage?decay=none&limit=20", timeout=60).json()
    page = patient(browser)
    page.goto(f"{url}/#stream=field&view=coverage")
    page.wait_for_selector("#coverage-silences [data-silent]")

    def drawn(selector: str, *names: str) -> list[tuple[str, ...]]:
        every = "all => all.map(each => ({...each.dataset}))"
        return [
            tuple(row[name] for name in names) for row in page.eval_on_selector_all(selector, every)
        ]

    alone = {each["source"]: each["estimate"]["value"] for each in answer["exclusive"]}
    heard = {each["source"]: each["count"]["value"] for each in answer["sources"]}
    rows = drawn("#coverage-exclusive tbody tr", "source", "heard", "alone")
    assert {(name, float(all_), float(own)) for name, all_, own in rows} == {
        (name, heard[name], alone[name]) for name in heard
    }
    shares = {pair: float(share) for pair, share in drawn("#coverage-heat rect", "pair", "share")}
    for each in answer["overlaps"]:
        pair = each["source"], each["other"]
        for row, column in (pair, pair[::-1]):
            expected = min(1.0, each["estimate"]["value"] / heard[column])
            assert shares[f"{row} {column}"] == pytest.approx(expected)
    steps = drawn("#coverage-cover tbody tr", "step", "covered")
    assert [(name, float(share)) for name, share in steps] == [
        (each["source"], each["covered"]["value"]) for each in answer["cover"]
    ]
    histories = drawn("#coverage-histories tbody tr", "history", "messages")
    assert [(names, float(count)) for names, count in histories] == [
        (" ".join(each["sources"]), each["estimate"]["value"]) for each in answer["histories"]
    ]
    spells = {
        (name, spell)
        for name, all_ in drawn("[data-silent]", "silent", "spells")
        for spell in all_.split()
    }
    assert spells == {
        (each["source"], f"{each['after']}-{each['before']}") for each in answer["silences"]
    }
    page.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_shows_what_each_source_heard_with_the_caveat_of_what_none_heard(
    url: str, browser: Any, theme: str, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = patient(context)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.goto(f"{url}/#stream=field&view=coverage")
    expect = sync_api.expect
    expect(page.locator("#coverage-exclusive tbody tr")).to_have_count(4)
    expect(page.locator("#coverage-heat rect")).to_have_count(16)
    expect(page.locator("#coverage-cover tbody tr").first).to_contain_text("gw-north")
    expect(page.locator("#coverage-histories tbody tr").first).to_contain_text("gw-north")
    expect(page.locator("[data-silent=gw-south]")).to_be_visible()
    unheard = page.locator("[data-unheard]")
    assert "assumes-independence" in (unheard.get_attribute("data-unheard") or "")
    expect(page.locator("#coverage-unheard .note")).to_contain_text("It is no packet loss")
    expect(page.locator("#coverage-caveats")).to_contain_text("silences")
    counted = page.locator("#coverage-says")
    before = counted.inner_text()
    page.check("#coverage-without")
    expect(counted).not_to_have_text(before)
    before = counted.inner_text()
    page.select_option("#coverage-decay", "window(1d)")
    expect(counted).not_to_have_text(before)
    picture(page, f"coverage-{theme}-{width}.png", full_page=True)
    violations = axe_playwright.Axe().run(page).response["violations"]
    assert [each["id"] for each in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert faults == []
    context.close()


def test_a_stream_of_another_family_has_no_such_view(url: str, browser: Any) -> None:
    page = patient(browser)
    page.goto(f"{url}/#stream=ends&view=coverage")
    expect = sync_api.expect
    expect(page.locator("#coverage-view")).to_be_hidden()
    expect(page.locator("#coverage")).to_be_hidden()
    page.close()
