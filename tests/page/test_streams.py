"""The list of streams, several streams in one view, comparisons of rows, and series."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest

import decaysketch as ds
from decaysketch.series import SeriesParams, SeriesSketch

from .conftest import NEWEST, OCTETS, PARAMS, picture, serving, sync_api

axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

ABOUT = {"unit": "°C", "description": "Room temperature"}
COLUMNS = ds.SketchParams(seed=1, time_unit="s", columns="temp float64, fw text")
COUNTERS = SeriesParams(time_unit="s", seed=1, attributes="site")


def post(http: httpx2.Client, stream: str, form: dict[str, Any], sketch: Any) -> None:
    http.put(f"/v1/streams/{stream}", json=form).raise_for_status()
    path = f"/v1/streams/{stream}/sketches?source=a"
    http.post(path, content=sketch.to_bytes(), headers=OCTETS).raise_for_status()


def rooms(mean: float) -> ds.DecaySketch:
    sketch = ds.DecaySketch(PARAMS)
    draw = np.random.default_rng(1)
    sketch.update(draw.normal(mean, 1, 300).round(1), 1, NEWEST - 10 * np.arange(300), range(300))
    return sketch


def fleet() -> ds.DecaySketch:
    sketch = ds.DecaySketch(COLUMNS)
    new = np.arange(200) % 2 == 1
    columns = {"temp": np.where(new, 25.0, 20.0), "fw": np.where(new, "2.1", "2.0")}
    sketch.update(columns, 1, NEWEST - np.arange(200), np.arange(200))
    return sketch


def machines() -> SeriesSketch:
    """Twelve counters of 0, 1, 2 ... of which two fell silent, which are states as well."""
    sketch = SeriesSketch(COUNTERS)
    for number in range(12):
        rows = 60 if number < 10 else 20
        times = NEWEST - 15 * np.arange(60)[::-1][:rows]
        site = {"site": "north" if number % 3 else "south"}
        sketch.update(np.arange(rows) // 20, 1, times, np.full(rows, number), attributes=site)
    return sketch


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("streams") / "data.sqlite3") as (url, http):
        described = {"params": PARAMS.to_dict(), **ABOUT}
        devices = {"views": {"devices": {"id": 0}}}
        post(http, "ward", described | devices, rooms(20))
        post(http, "hall", described, rooms(17))
        post(http, "fleet", {"params": COLUMNS.to_dict()}, fleet())
        post(http, "machines", {"family": "series", "params": COUNTERS.to_dict()}, machines())
        yield url


@pytest.fixture
def look(visit: Callable[..., sync_api.Page], url: str) -> Callable[..., sync_api.Page]:
    def opened(fragment: str, **how: Any) -> sync_api.Page:
        page = visit(f"{url}/#stream={fragment}", **how)
        page.wait_for_selector("[data-figure] .value")
        return page

    return opened


def test_units_names_and_derived_streams(look: Callable[..., sync_api.Page]) -> None:
    page = look("ward")
    assert page.inner_text("#stream-about") == "Room temperature, in °C"
    assert page.inner_text("[data-figure=mean] .value").endswith("°C")
    assert "°C" not in page.inner_text("[data-figure=count] .value")
    assert page.inner_text("tr[data-stream=ward] .about") == "Room temperature (°C)"
    assert page.locator("tr[data-stream='ward.devices']").count() == 0
    page.click("tr[data-stream=ward] .fold")
    page.click("tr[data-stream='ward.devices'] .name")
    page.wait_for_function(
        "() => document.querySelector('#stream-name').innerText === 'ward.devices'"
    )
    heading = page.inner_text("#streams thead th:last-child")
    assert heading.startswith("Decayed count, half-life")


def test_several_streams_share_times_and_decay(look: Callable[..., sync_api.Page]) -> None:
    page = look("ward&with=fleet&show=mean")
    page.click("tr[data-stream=hall] .add")
    page.wait_for_selector("#several tr[data-several=hall]")
    decay = page.eval_on_selector("[data-figure=mean]", "each => JSON.parse(each.dataset.decay)")
    for name, mean in (("ward", 20), ("hall", 17)):
        expected = rooms(mean).mean(ds.decay.exponential(half_life=decay["half_life"]), now=NEWEST)
        shown = page.get_attribute(f"#several tr[data-several={name}]", "data-value")
        assert float(shown or "nan") == pytest.approx(expected.value)
    page.wait_for_selector("#several-chart canvas")
    page.wait_for_function("() => location.hash.includes('with=fleet%2Chall')")
    page.click("button[aria-label='Remove fleet']")
    page.wait_for_selector("#several tr[data-several=fleet]", state="detached")


def test_rows_are_compared_with_others(look: Callable[..., sync_api.Page]) -> None:
    page = look("fleet&where=fw%20%3D%3D%20'2.1'&by=fw")
    page.select_option("#versus-ago", "rows")
    assert "condition" in page.inner_text("#versus-panel .note")
    page.fill("#versus-where", "fw == '2.0'")
    mean = page.locator("#versus tr[data-compared=mean]")
    sync_api.expect(mean).to_contain_text("+5")
    sync_api.expect(mean).to_contain_text("changed")
    page.fill("#versus-where", "nonsense >")
    page.wait_for_selector("#versus-panel .note:not([hidden])")
    assert page.inner_text("#where-error") == ""  # the filter is sound


def test_series_agree_with_the_library(look: Callable[..., sync_api.Page]) -> None:
    page = look("machines")
    sketch = machines()
    shown = page.eval_on_selector_all(
        "[data-figure]",
        "all => Object.fromEntries(all.map(({dataset}) => [dataset.figure, {...dataset}]))",
    )
    half_life = json.loads(shown["increase"]["decay"])["half_life"]
    decay = ds.decay.exponential(half_life=half_life)
    for name in ("increase", "increase_rate"):
        expected = getattr(sketch, name)(decay, now=NEWEST)
        told = [float(shown[name][field]) for field in ("value", "lower", "upper")]
        assert told == pytest.approx([expected.value, expected.lower, expected.upper])
    assert (shown["active"]["value"], shown["silent"]["value"]) == ("10", "2")
    for panel in ("readings", "activity"):
        page.wait_for_selector(f"#{panel}-chart canvas")

    rows = "rows => rows.map(({dataset}) => [JSON.parse(dataset.group).site, dataset.value])"
    page.fill("#by", "site")
    page.check("#group-times")
    page.wait_for_selector("#group-multiples figure:nth-child(2)")
    found = page.eval_on_selector_all("#groups tbody tr", rows)
    expected = [
        (each.by["site"], pytest.approx(each.answer.value))
        for each in sketch.increase_rate(decay, now=NEWEST, by="site")
    ]
    assert [(site, float(value)) for site, value in found] == expected
    page.select_option("#group-aggregate", "silent_series")
    page.wait_for_selector("#groups tbody tr[data-value='2']")

    page.select_option("#series-kind", "state")
    assert page.input_value("#group-aggregate") == "silent_series"
    page.fill("#series-states", "0, 1")
    page.wait_for_selector("#states [data-state=other]")
    assert page.locator("#states figure").count() == 3
    page.fill("#series-states", "idle")
    page.wait_for_selector("#series-states[aria-invalid=true]")
    page.fill("#series-states", "0, 1, 2")
    page.wait_for_selector("#states [data-state=other]", state="detached")
    page.wait_for_function("() => location.hash.includes('series-kind=state')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures(look: Callable[..., sync_api.Page], theme: str) -> None:
    page = look("ward&with=hall&show=mean", theme=theme)
    page.wait_for_selector("#several-chart canvas")
    page.evaluate("location.hash = '#stream=machines&with=ward'")
    page.wait_for_selector("#activity-chart canvas")
    for name, size in (("wide", (1280, 900)), ("phone", (390, 844))):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        picture(page, f"series-{name}-{theme}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        found = axe_playwright.Axe().run(page).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
