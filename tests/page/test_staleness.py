"""What is shown stays while another answer is awaited or refused, and says that it is old."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Site, picture, sync_api

axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

PANELS = ("count", "quantile", "versus", "any")
QUERIES = "**/query"
REFUSAL = "the journal is out of reach"
THEMES = [("light", (1280, 900)), ("dark", (390, 844))]


def opened(visit: Callable[..., sync_api.Page], site: Site, **look: Any) -> sync_api.Page:
    """The page of a stream, once all of it is drawn."""
    page = visit(f"{site.url}/#stream=ward-7", **look)
    page.wait_for_selector("#count-chart canvas")
    page.wait_for_selector("#quantile-chart canvas")
    page.wait_for_selector("#versus tbody tr")
    page.wait_for_selector("#any-panel .found tbody tr")
    page.wait_for_selector("tr[data-stream=ward-7] svg.spark")
    return page


def refuse(route: sync_api.Route) -> None:
    body = json.dumps({"detail": REFUSAL})
    route.fulfill(status=503, content_type="application/problem+json", body=body)


def stays(page: sync_api.Page) -> None:
    """Every drawing is there, and marked."""
    for name in PANELS:
        page.wait_for_selector(f"#{name}-panel.old")
        assert page.inner_text(f"#{name}-panel .age").startswith("drawn at "), name
    assert page.is_visible("#count-chart canvas")
    assert page.is_visible("#quantile-chart canvas")
    assert page.is_visible("#versus tbody tr")
    assert page.is_visible("#any-panel .found tbody tr")
    assert page.is_visible("[data-figure=count] .value")
    assert page.locator("tr[data-stream=ward-7] svg.spark").count() == 1


def is_legible(page: sync_api.Page) -> None:
    violations = axe_playwright.Axe().run(page).response["violations"]
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in violations] == []


@pytest.mark.parametrize(("theme", "size"), THEMES)
def test_drawings_stay_while_every_answer_is_refused_and_come_back_of_themselves(
    visit: Callable[..., sync_api.Page], site: Site, theme: str, size: tuple[int, int]
) -> None:
    page = opened(visit, site, theme=theme, size=size)
    page.route(QUERIES, refuse)
    page.check("input[name=kind][value=window]")
    stays(page)
    page.wait_for_function(
        "() => /^not answered · shown since /.test(document.querySelector('#status').innerText)"
    )
    for place in ("#ask-error", "#any-error"):
        page.wait_for_selector(f"{place}:has-text('{REFUSAL}')")
    page.wait_for_selector("tr[data-stream=ward-7] .spark-cell.old svg.spark")
    is_legible(page)
    picture(page, f"stale-{theme}-{size[0]}.png", full_page=True)
    page.unroute(QUERIES)
    for name in PANELS:  # nobody touches anything
        page.wait_for_selector(f"#{name}-panel:not(.old)")
        assert page.inner_text(f"#{name}-panel .age") == ""
    page.wait_for_selector("#answers:not(.stale)")
    page.wait_for_selector("tr[data-stream=ward-7] .spark-cell:not(.old) svg.spark")
    assert page.inner_text("#any-error") == ""
    assert "answered in" in page.inner_text("#status")


def test_drawings_stay_while_every_answer_is_slow(
    visit: Callable[..., sync_api.Page], site: Site
) -> None:
    page = opened(visit, site)
    held: list[sync_api.Route] = []
    page.route(QUERIES, lambda route: held.append(route))  # and nothing more
    page.check("input[name=kind][value=window]")
    stays(page)
    assert all("asking" in page.inner_text(f"#{name}-panel .age") for name in PANELS)
    assert page.inner_text("#status") == "asking …"
    page.unroute(QUERIES)  # lets those go that are held
    page.wait_for_selector("#count-panel:not(.old)")
    page.wait_for_selector("#answers:not(.stale)")


def test_one_question_that_is_refused_leaves_the_others_as_they_are(
    visit: Callable[..., sync_api.Page], site: Site
) -> None:
    page = opened(visit, site)
    page.route(
        QUERIES,
        lambda route: (
            refuse(route) if "times" in str(route.request.post_data) else route.continue_()
        ),
    )
    page.check("input[name=kind][value=window]")
    page.wait_for_selector("#count-panel.old")
    page.wait_for_selector("[data-figure=count][data-decay*=window]")
    page.wait_for_selector("#versus-panel:not(.old)")
    page.wait_for_selector("#answers:not(.stale)")
    assert page.is_visible("#count-chart canvas")
    assert REFUSAL in page.inner_text("#count-panel .note")


def test_numbers_of_one_stream_do_not_stand_under_the_name_of_another(
    visit: Callable[..., sync_api.Page], site: Site
) -> None:
    page = opened(visit, site)
    held: list[sync_api.Route] = []
    page.route("**/v1/streams/tap-sums/query", lambda route: held.append(route))
    page.click("tr[data-stream=tap-sums] button")
    page.wait_for_function("() => document.querySelector('#stream-name').innerText === 'tap-sums'")
    assert "of ward-7 · asking" in page.inner_text("#count-panel .age")
    assert page.get_attribute("#answers", "class") == "answers stale"
    page.wait_for_function("() => document.querySelector('#status').innerText === 'asking …'")
    page.route("**/v1/streams/tap-sums/query", refuse)
    page.check("input[name=kind][value=expression]")  # asked anew
    page.wait_for_selector("#count-panel.without-chart")
    page.wait_for_function("() => !document.querySelector('#figures').childElementCount")
    assert page.inner_text("#status") == "not answered"


@pytest.mark.parametrize("view", ["sources", "lists"])
def test_a_panel_that_is_watched_says_that_it_is_not_heard_of(
    visit: Callable[..., sync_api.Page], site: Site, view: str
) -> None:
    page = visit(f"{site.url}/#stream=ward-7&view={view}")
    page.wait_for_selector(f"#{'sources tbody tr' if view == 'sources' else 'no-lists'}")
    path = "**/v1/streams/ward-7/" + ("sources?*" if view == "sources" else "topk")
    page.route(path, refuse)
    page.wait_for_selector(f"#{view}.stale")
    assert page.inner_text(f"#{view}-error") == f"Not heard of now: {REFUSAL}"
    is_legible(page)
    page.unroute(path)
    page.wait_for_selector(f"#{view}:not(.stale)")
    assert page.inner_text(f"#{view}-error") == ""
