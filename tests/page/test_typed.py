"""What is typed and cannot be read: it stays, its fault is said, and nothing is asked of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import NEWEST, PARAMS, Site, picture, sync_api

WARD = "#stream=ward-7"
FORM = "a number above 0 and its unit, such as 90s, 1.5h or 2d"
ANSWERS = ("mean", "quantile", "histogram")  # asked of them, and not of the list of streams
UNTIL_MENDED_MS = 3_500  # a look at the streams, and every moment of a moving clock


@pytest.fixture
def ward(visit: Callable[..., sync_api.Page], site: Site) -> sync_api.Page:
    """The page on a stream, all of its answers shown."""
    page = visit(f"{site.url}/{WARD}")
    page.wait_for_selector("[data-figure=count] .value")
    page.wait_for_load_state("networkidle")
    return page


def questions(page: sync_api.Page) -> list[str]:
    """The bodies of the questions that are asked from now on."""
    asked: list[str] = []
    page.on(
        "request",
        lambda request: asked.append(request.post_data) if "/query" in request.url else None,
    )
    return asked


LENGTHS = [
    ("6 hr", "6h"),
    ("-6h", "6h"),
    ("1.5 Hrs", "1.5h"),
    ("20 mins", "20min"),
    ("2 wks.", "2w"),
    ("3 mo", FORM),  # no guess: a month is not of one length
    ("1,000 s", FORM),
    ("0", FORM),
    ("soon", FORM),
]


def test_a_length_that_is_none_is_told_and_what_to_write(ward: sync_api.Page) -> None:
    told = """async typed => {
        const {Unit} = await import('/assets/units.js');
        const unit = new Unit('us');
        return [unit.parseDuration(typed), unit.faultOfDuration(typed)];
    }"""
    for typed, write in LENGTHS:
        fault = f"'{typed}' is no length of time: write {write}"
        assert ward.evaluate(told, typed) == [None, fault]


def test_a_length_of_a_counter_is_told_in_its_unit(ward: sync_api.Page) -> None:
    told = ward.evaluate(
        """async () => {
            const {Unit} = await import('/assets/units.js');
            return new Unit('frames').faultOfDuration('6 hr');
        }"""
    )
    assert told == "'6 hr' is no length of time: write a number of frames above 0, such as 90"


@pytest.mark.parametrize("leave", ["Enter", "Tab"])
def test_a_length_that_is_none_stays_and_nothing_is_asked_until_it_is_mended(
    ward: sync_api.Page, leave: str
) -> None:
    before = ward.inner_text("[data-figure=count] .value")
    ward.fill("#age-text", "6 hr")
    ward.wait_for_timeout(500)  # what was asked of the "6" and the "6 h" before it, if anything
    asked = questions(ward)
    ward.keyboard.press(leave)
    ward.select_option("#confidence", "0.8")
    ward.select_option("#versus-ago", "600")
    ward.select_option("#phi", "0.1")
    ward.wait_for_timeout(UNTIL_MENDED_MS)
    assert asked == []
    assert ward.input_value("#age-text") == "6 hr"
    assert ward.inner_text("#decay-error") == "'6 hr' is no length of time: write 6h"
    assert ward.get_attribute("#age-text", "aria-invalid") == "true"
    assert ward.inner_text("#status") == "not asked: the half-life is none"
    assert ward.inner_text("[data-figure=count] .value") == before
    assert ward.locator("#answers.stale").count() == 1  # it is of another half-life
    assert "not asked" in ward.inner_text("#count-panel .age")
    picture(ward, "typed-length.png")

    ward.fill("#age-text", "6h")
    ward.wait_for_selector("[data-figure=count][data-decay*='21600']")
    ward.keyboard.press("Enter")
    assert ward.input_value("#age-text") == "6\u00a0h"
    assert ward.inner_text("#decay-error") == ""
    ward.wait_for_selector("#answers:not(.stale)")
    for panel in ("count-panel", "versus-panel", "any-panel"):
        ward.wait_for_selector(f"#{panel}:not(.old)")
    assert asked


@pytest.mark.parametrize("mend", ["slider", "kind", "stream"])
def test_another_choice_in_place_of_a_length_that_is_none_is_asked(
    ward: sync_api.Page, mend: str
) -> None:
    ward.fill("#age-text", "-6h")
    assert ward.inner_text("#decay-error") == "'-6h' is no length of time: write 6h"
    if mend == "slider":
        ward.focus("#age-slider")
        ward.keyboard.press("ArrowRight")
    elif mend == "kind":
        ward.check("input[name=kind][value=window]")
    else:
        ward.click("tr[data-stream=tap-sums] button")
        ward.wait_for_selector("[data-figure=sum]")
    ward.wait_for_selector("#answers:not(.stale)")
    assert ward.inner_text("#decay-error") == ""
    assert "-" not in ward.input_value("#age-text")
    assert ward.get_attribute("#age-text", "aria-invalid") == "false"


def test_a_time_that_is_none_stays_and_nothing_is_asked_until_it_is_mended(
    ward: sync_api.Page,
) -> None:
    asked = questions(ward)
    ward.fill("#now-text", "yesterday")
    ward.keyboard.press("Tab")
    ward.select_option("#confidence", "0.8")
    ward.wait_for_timeout(UNTIL_MENDED_MS)
    assert [body for body in asked if any(name in body for name in ANSWERS)] == []
    assert ward.input_value("#now-text") == "yesterday"
    said = "'yesterday' is no time: write one such as 2026-01-31 12:00:00 (UTC)"
    assert ward.inner_text("#now-error") == said
    assert ward.inner_text("#status") == "not asked: the time is none"
    ward.fill("#now-text", "2025-06-15 14:06:40")
    ward.keyboard.press("Enter")
    ward.wait_for_selector(f"[data-figure=count][data-now='{NEWEST - 3600}']")
    assert ward.inner_text("#now-error") == ""
    for panel in ("count-panel", "versus-panel", "any-panel"):
        ward.wait_for_selector(f"#{panel}:not(.old)")


def test_no_alert_is_defined_by_a_decay_that_is_none(
    visit: Callable[..., sync_api.Page], site: Site
) -> None:
    site.http.put("/v1/streams/typed", json={"params": PARAMS.to_dict()}).raise_for_status()
    page = visit(f"{site.url}/#stream=typed&view=alerts")
    page.click("#define-button")
    page.fill("#define-monitor", "storm")
    page.fill("#define-line", "7")
    page.fill("#age-text", "6 hr")
    page.click("#define button[type=submit]")
    said = page.inner_text("#define .general")
    assert said == "The decay beside: '6 hr' is no length of time: write 6h"
    assert site.http.get("/v1/streams/typed/monitors").json()["monitors"] == []
    site.http.delete("/v1/streams/typed").raise_for_status()
