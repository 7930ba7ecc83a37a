"""The answers of one source, or of all together: what is asked, shown, kept and taken along."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import decaysketch as ds

from .conftest import NEWEST, OCTETS, PARAMS, Site, copied, picture, sync_api

axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

MACHINES, SUGGESTED = 120, 50
LOOK_MS = 3_500  # the next look at the streams is over


def _machine(number: int, rows: int = 3) -> ds.DecaySketch:
    sketch = ds.DecaySketch(PARAMS)
    ages = 60 * np.arange(rows)
    sketch.update(np.full(rows, 1.0 * number), 1, NEWEST - ages, 1_000 * number + np.arange(rows))
    return sketch


def _post(site: Site, stream: str, source: str, sketch: ds.DecaySketch) -> None:
    site.http.post(
        f"/v1/streams/{stream}/sketches",
        params={"source": source}, content=sketch.to_bytes(), headers=OCTETS,
    ).raise_for_status()  # fmt: skip


@pytest.fixture
def machines(site: Site) -> Iterator[Site]:
    """A stream of two machines that differ, and one of very many."""
    for stream in ("presses", "plant"):
        site.http.put(f"/v1/streams/{stream}", json={"params": PARAMS.to_dict()}).raise_for_status()
    for number in (1, 2):
        _post(site, "presses", f"m{number}", _machine(number, rows=10 * number))
    for number in range(MACHINES):
        _post(site, "plant", f"m{number}", _machine(number))
    yield site
    for stream in ("presses", "plant"):
        site.http.delete(f"/v1/streams/{stream}").raise_for_status()


@pytest.fixture
def look(visit: Callable[..., sync_api.Page], machines: Site) -> Callable[..., sync_api.Page]:
    """The page on a stream, under no decay."""

    def opened(fragment: str, **how: tuple[int, int]) -> sync_api.Page:
        return visit(f"{machines.url}/#{fragment}&kind=none", **how)

    return opened


def mean(page: sync_api.Page, value: float) -> sync_api.Locator:
    """The figure of the mean, once it is this one, and no longer in doubt."""
    page.wait_for_selector(f"#answers:not(.stale) [data-figure=mean][data-value='{value:g}']")
    return page.locator("[data-figure=mean]")


def settle(page: sync_api.Page) -> None:
    """Wait until the list has asked for all sources, which it does last."""
    spark = page.locator("tr[data-stream=presses] .spark-value")
    sync_api.expect(spark).to_have_text("30")
    page.wait_for_load_state("networkidle")


def test_one_source_is_asked_for_in_every_panel_and_kept_in_the_address(
    look: Callable[..., sync_api.Page], tmp_path: Path
) -> None:
    page = look("stream=presses")
    page.wait_for_selector("[data-figure=count][data-value='30']")
    assert page.inner_text("#answers-of") == "Answers of all 2 sources together"
    assert page.get_attribute("#source", "placeholder") == "all 2 together"
    for drawn in ("#count-chart canvas", "#versus tbody tr", "#any-panel .found tbody tr"):
        page.wait_for_selector(drawn)  # all that the panels ask first
    settle(page)
    asked: list[str] = []
    page.on(
        "request",
        lambda sent: asked.append(sent.post_data) if "presses/query" in sent.url else None,
    )
    page.fill("#source", "m1")
    page.keyboard.press("Enter")
    mean(page, 1)
    assert page.inner_text("#answers-of") == "Answers of the source m1 alone"
    page.wait_for_selector("#count-panel:not(.old)[data-last='10']")
    for _ in range(3_000):  # as long as only what hangs takes
        page.wait_for_timeout(100)
        if len(asked) >= 4:
            break
    page.wait_for_selector("#any-panel:not(.old)")
    page.wait_for_selector("#versus-panel:not(.old)")
    bodies = [json.loads(body) for body in asked]
    assert len(bodies) >= 4  # figures, charts, a comparison, any question
    assert {tuple(body["sources"]) for body in bodies} == {("m1",)}
    assert page.inner_text("tr[data-stream=presses] .spark-value") == "30"  # of all, as the list

    command = copied(page, "#time-panel .takings button:text('curl')")
    said = shlex.split(command.replace("\\\n", " "))
    assert json.loads(said[said.index("-d") + 1])["sources"] == ["m1"]
    for panel, name in (("time", "figures"), ("count", "count"), ("any", "histogram")):
        with page.expect_download() as saving:
            page.click(f"#{panel}-panel .takings button:text('CSV')")
        assert saving.value.suggested_filename == f"presses-source-m1-{name}.csv"

    page.wait_for_function("() => location.hash.includes('&source=m1')")
    page.reload()
    mean(page, 1)
    assert page.input_value("#source") == "m1"
    page.fill("#source", "")
    page.wait_for_selector("[data-figure=count][data-value='30']")
    page.wait_for_function("() => !location.hash.includes('source')")


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["wide", "phone"])
def test_a_source_that_there_is_not_is_said_and_nothing_is_asked(
    look: Callable[..., sync_api.Page], machines: Site, size: tuple[int, int]
) -> None:
    page = look("stream=presses&source=m9", size=size)
    said = page.locator("#source-error")
    expected = "there is no source 'm9' in this stream: choose another, or none for all"
    sync_api.expect(said).to_have_text(expected)
    settle(page)
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url) if "presses/query" in sent.url else None)
    page.select_option("#any-question", "mean")
    page.wait_for_timeout(LOOK_MS)
    assert asked == []
    assert page.input_value("#source") == "m9"
    assert page.inner_text("#status") == "not asked: there is no such source"
    assert page.inner_text("#ask-error") == ""
    assert page.locator("[data-figure] .value").count() == 0
    assert "&source=m9" in page.evaluate("location.hash")
    violations = axe_playwright.Axe().run(page).response["violations"]
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    picture(page, f"no-such-source-{size[0]}.png", full_page=True)
    _post(machines, "presses", "m9", _machine(9))  # until it is there
    mean(page, 9)
    assert said.inner_text() == ""
    picture(page, f"source-{size[0]}.png", full_page=True)


def test_of_very_many_sources_those_are_suggested_that_begin_as_is_typed(
    look: Callable[..., sync_api.Page],
) -> None:
    page = look("stream=plant")
    page.wait_for_selector("[data-figure=mean] .value")
    assert f"{MACHINES} sources" in page.inner_text("#stream-facts")
    page.focus("#source")
    options = page.locator("#source-names option")
    sync_api.expect(options).to_have_count(SUGGESTED)
    assert page.locator("#source-names option[value=m99]").count() == 0
    page.keyboard.type("m9")
    page.wait_for_selector("#source-names option[value=m99]", state="attached")
    assert options.count() <= SUGGESTED
    mean(page, 9)  # it is one itself
    page.keyboard.type("9")
    mean(page, 99)


def test_there_is_nothing_to_choose_of_one_source_and_no_choice_is_taken_along(
    look: Callable[..., sync_api.Page],
) -> None:
    page = look("stream=presses&source=m2")
    mean(page, 2)
    page.click("tr[data-stream=tap-sums] button")
    page.wait_for_selector("[data-figure=sum] .value")
    sync_api.expect(page.locator("#source-field")).to_be_hidden()
    page.click("tr[data-stream=plant] button")
    page.wait_for_selector(f"[data-figure=count][data-value='{3 * MACHINES}']")
    assert page.input_value("#source") == ""
    page.wait_for_function("() => location.hash.startsWith('#stream=plant&kind=none')")
