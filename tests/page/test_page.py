"""The page in a browser: what it shows is what the library computes, at once, for everyone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.asyncwindow import SumSampler

from .conftest import (
    NEWEST,
    OCTETS,
    PARAMS,
    Site,
    copied,
    mint,
    patient,
    picture,
    serving,
    sync_api,
)

axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

WIDE, PHONE = (1280, 900), (390, 844)
WARD = "#stream=ward-7"


@pytest.fixture
def open_page(visit: Callable[..., sync_api.Page], site: Site) -> Callable[..., sync_api.Page]:
    """The page on a stream, its answers shown."""

    def opened(fragment: str = WARD, *, url: str = "", **how: Any) -> sync_api.Page:
        page = visit(f"{url or site.url}/{fragment}", **how)
        if not url:
            page.wait_for_selector("[data-figure=count] .value")
        return page

    return opened


def shown(page: sync_api.Page, decay: dict[str, Any], figure: str = "count") -> dict[str, str]:
    """The data of a figure, once it is the answer under a decay."""
    page.wait_for_function(
        """([figure, wanted]) => {
            const held = document.querySelector(`[data-figure=${figure}]`)?.dataset.decay;
            if (!held) return false;
            const decay = JSON.parse(held);
            return Object.entries(wanted).every(([field, value]) => decay[field] === value);
        }""",
        arg=[figure, decay],
    )
    return page.eval_on_selector(f"[data-figure={figure}]", "each => ({...each.dataset})")


def agrees(figure: dict[str, str], estimate: ds.Estimate) -> bool:
    told = [float(figure[field]) for field in ("value", "lower", "upper")]
    expected = pytest.approx([estimate.value, estimate.lower, estimate.upper], rel=1e-12)
    return told == expected and figure["exact"] == str(estimate.exact).lower()


def choose(page: sync_api.Page, kind: str) -> None:
    page.check(f"input[name=kind][value={kind}]")


def test_every_decay_changes_the_numbers_to_those_of_the_library(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    page = open_page()
    now = NEWEST
    for half_life in ("15 min", "40 s"):
        page.fill("#age-text", half_life)
        seconds = {"15 min": 900, "40 s": 40}[half_life]
        decay = ds.decay.exponential(half_life=seconds)
        wanted = {"kind": "exponential", "half_life": seconds}
        count = shown(page, wanted)
        assert int(count["now"]) == now
        assert agrees(count, site.sketch.count(decay, now=now))
        assert agrees(shown(page, wanted, "mean"), site.sketch.mean(decay, now=now))
        median = site.sketch.quantile(0.5, decay, now=now)
        assert agrees(shown(page, wanted, "p50"), median)

    choose(page, "window")
    page.fill("#age-text", "30 min")
    count = shown(page, {"kind": "window", "width": 1800})
    assert agrees(count, site.sketch.count(ds.decay.window(1800), now=now))

    choose(page, "polynomial")
    page.fill("#age-text", "120")
    page.fill("#exponent", "2")
    wanted = {"kind": "polynomial", "exponent": 2, "scale": 120}
    decay = ds.decay.polynomial(2, scale=120)
    assert agrees(shown(page, wanted), site.sketch.count(decay, now=now))

    choose(page, "none")
    assert agrees(shown(page, {"kind": "none"}), site.sketch.count(ds.decay.none(), now=now))


def test_a_slider_moves_the_half_life_and_the_curve_with_it(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    page = open_page()
    before = page.get_attribute("#curve .line", "d")
    decay_before = page.get_attribute("[data-figure=count]", "data-decay")
    page.focus("#age-slider")
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "before => document.querySelector('#curve .line').getAttribute('d') !== before", arg=before
    )
    page.wait_for_function(  # the figure and the chart are of the same other decay
        """before => {
            const { decay, value } = document.querySelector('[data-figure=count]').dataset;
            const { last } = document.querySelector('#count-panel').dataset;
            return decay !== before && Math.abs(last - value) < 1e-6;
        }""",
        arg=decay_before,
    )
    figure = page.eval_on_selector("[data-figure=count]", "each => ({...each.dataset})")
    decay = ds.decay.exponential(half_life=json.loads(figure["decay"])["half_life"])
    assert agrees(figure, site.sketch.count(decay, now=NEWEST))
    assert int(page.get_attribute("#count-panel", "data-points") or 0) > 90


def test_what_is_typed_is_drawn_or_its_fault_is_said(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    page = open_page()
    choose(page, "expression")
    text = "where(x <= 600, 1, 1/4)"
    page.fill("#expression", text)
    decay = ds.decay.expression(text)
    wanted = {"kind": "expression", "text": text}
    assert agrees(shown(page, wanted), site.sketch.count(decay, now=NEWEST))
    drawn = page.get_attribute("#curve .line", "d")

    page.fill("#expression", "1/(1 + y)")
    page.wait_for_function(
        "() => document.querySelector('#decay-error').innerText.includes(\"'y'\")"
    )
    assert page.get_attribute("#expression", "aria-invalid") == "true"

    page.fill("#expression", "1 + x")
    page.wait_for_function("() => /ris/.test(document.querySelector('#decay-error').innerText)")
    assert page.get_attribute("#curve .line", "d") == drawn  # of the last that was a decay

    page.fill("#expression", "1/(1 + x/60)")
    shown(page, {"kind": "expression", "text": "1/(1 + x/60)"})
    assert page.inner_text("#decay-error") == ""


def test_now_moves_into_the_past_and_the_interval_with_the_confidence(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    page = open_page()
    choose(page, "none")
    shown(page, {"kind": "none"})
    page.fill("#now-text", "yesterday")
    page.keyboard.press("Enter")
    assert "2026-01-31 12:00:00" in page.inner_text("#now-error")
    past = NEWEST - 3600
    page.fill("#now-text", "2025-06-15 14:06:40")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"[data-figure=count][data-now='{past}']")
    page.select_option("#confidence", "0.8")
    expected = site.sketch.count(ds.decay.none(), now=past, confidence=0.8)
    page.wait_for_selector(f"[data-figure=count][data-upper^='{str(expected.upper)[:8]}']")
    assert agrees(shown(page, {"kind": "none"}), expected)
    assert page.inner_text("#now-error") == ""


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_labels_are_bars_by_their_text(
    open_page: Callable[..., sync_api.Page], site: Site, size: tuple[int, int]
) -> None:
    params = replace(PARAMS, value_type="label")
    sketch = ds.DecaySketch(params)
    texts = ["E42", "<b>bold</b>", "a label that is far too long for a line of a telephone", ""]
    draw = np.random.default_rng(4)
    values = [texts[n] for n in draw.choice(4, 500, p=[0.5, 0.25, 0.15, 0.1])]
    sketch.update(values, 1, NEWEST - draw.integers(0, 3_000, 500), np.arange(500))
    stream = "/v1/streams/errors"
    site.http.put(stream, json={"params": params.to_dict()}).raise_for_status()
    try:
        site.http.post(
            f"{stream}/sketches?source=a", content=sketch.to_bytes(), headers=OCTETS
        ).raise_for_status()
        page = open_page("#stream=errors", size=size)
        choose(page, "none")
        shown(page, {"kind": "none"})
        page.wait_for_selector("#hitters[data-count='4']")
        found = page.eval_on_selector_all(
            "#hitters tbody tr", "rows => rows.map(row => row.dataset.value)"
        )
        expected = sketch.heavy_hitters(0.02, ds.decay.none(), now=NEWEST)
        assert found == [each.value for each in expected]
        assert page.inner_text("#hitters-title") == "Most frequent labels"
        assert page.is_hidden("#quantile-panel")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finally:
        site.http.delete(stream).raise_for_status()


def test_heavy_hitters_are_those_of_the_library(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    page = open_page()
    choose(page, "window")
    page.fill("#age-text", "1 h")
    shown(page, {"kind": "window", "width": 3600})
    page.select_option("#phi", "0.1")
    expected = site.sketch.heavy_hitters(0.1, ds.decay.window(3600), now=NEWEST)
    page.wait_for_selector(f"#hitters[data-count='{len(expected)}']")
    rows = page.eval_on_selector_all(
        "#hitters tbody tr", "rows => rows.map(row => [+row.dataset.value, +row.dataset.share])"
    )
    assert [value for value, _ in rows] == [each.value for each in expected]
    assert [share for _, share in rows] == pytest.approx(
        [each.frequency.value for each in expected]
    )


def found(page: sync_api.Page, aggregate: str) -> list[list[str]]:
    """The cells of the answer to any question, once it is that to this one."""
    page.wait_for_selector(f"#any-panel .found[data-aggregate={aggregate}] td")
    return page.eval_on_selector_all(
        "#any-panel .found tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))",
    )


def test_any_question_is_asked_and_answered_as_by_the_library(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    page = open_page()
    choose(page, "window")
    page.fill("#age-text", "1 h")
    shown(page, {"kind": "window", "width": 3600})
    decay = ds.decay.window(3600)
    names = page.eval_on_selector_all("#any-question option", "all => all.map(each => each.value)")
    assert set(names) == ds.DecaySketch.questions
    for name in sorted(names):
        page.select_option("#any-question", name)
        assert found(page, name), name
        assert page.inner_text("#any-error") == ""
    page.select_option("#any-question", "histogram")
    page.fill("#any-panel input[name=edges]", "10, 20, 30")
    page.wait_for_selector("#any-panel .found[data-rows='2']")
    histogram = site.sketch.histogram([10, 20, 30], decay, now=NEWEST)
    cells = found(page, "histogram")
    assert [row[:2] for row in cells[:2]] == [["10", "20"], ["20", "30"]]
    for row, each in zip(cells, histogram.bins, strict=False):
        assert float(row[2]) == pytest.approx(each.share.value, abs=0.01)
    assert cells[2][0] == "below"
    assert float(cells[2][1]) == pytest.approx(histogram.below.value, abs=0.01)
    page.fill("#any-panel input[name=edges]", "30, 20")
    page.wait_for_function(
        "() => document.querySelector('#any-error').textContent.includes('rising')"
    )
    page.fill("#any-panel input[name=edges]", "ten")
    page.wait_for_selector("#any-panel input[aria-invalid=true]")
    page.select_option("#any-question", "last")
    [[value, time, *_]] = found(page, "last")
    last = site.sketch.last(decay, now=NEWEST)
    assert last is not None
    assert (float(value), time) == (last.value, "2025-06-15 15:06:40")


def test_now_is_compared_with_a_while_ago(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    """Differences and ratios with their intervals, and whether that can be chance."""
    page = open_page()
    choose(page, "window")
    page.fill("#age-text", "10 min")
    shown(page, {"kind": "window", "width": 600})
    decay = ds.decay.window(600)
    for ago in (3_600, 600):
        page.select_option("#versus-ago", str(ago))
        moments = {"now": (decay, NEWEST), "then": (decay, NEWEST - ago)}
        rows = {}
        for name in ("count", "mean"):
            found = site.sketch.compare(name, **moments)
            rows[name] = "true" if found.changed else "false"
        page.wait_for_function(
            """rows => Object.entries(rows).every(([name, changed]) => changed ===
                document.querySelector(`#versus tr[data-compared=${name}]`)?.dataset.changed)""",
            arg=rows,
        )
        ratio = site.sketch.compare("count", **moments, how="ratio")
        cell = page.locator("#versus tr[data-compared=count] td").nth(2)
        sync_api.expect(cell).to_contain_text(f"× {ratio.value:.2f}"[:5])
    page.select_option("#versus-ago", "604800")  # when there was nothing yet
    sync_api.expect(page.locator("#versus tr[data-compared=mean]")).to_contain_text("–")
    sync_api.expect(page.locator("#versus tr[data-compared=count]")).to_contain_text("changed")


def test_a_post_shows_without_reloading(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    page = open_page("#stream=alarms")
    params = ds.SketchParams.from_dict(site.http.get("/v1/streams/alarms").json()["params"])
    sketch = ds.IntegralDecaySketch(params, ds.decay.integral.window(3600))
    sketch.update([1.0, 2.0, 2.0], 1, [NEWEST, NEWEST, NEWEST - 60], [1, 2, 3])
    answer = site.http.post(
        "/v1/streams/alarms/sketches",
        params={"source": "panel"},
        content=sketch.to_bytes(),
        headers={"content-type": "application/octet-stream"},
    )
    assert answer.status_code == 200, answer.text
    page.wait_for_selector("[data-figure=count][data-value='3']")
    assert "fixed" in page.inner_text("#decay-fixed")
    assert page.is_hidden("#decay-control")


def test_a_stream_of_sums_has_the_panels_that_it_can_answer(
    open_page: Callable[..., sync_api.Page],
) -> None:
    page = open_page("#stream=tap-sums")
    page.wait_for_selector("[data-figure=sum] .value")
    assert page.is_hidden("#quantile-panel")
    assert page.is_hidden("#hitters-panel")
    assert page.is_disabled("input[name=kind][value=exponential]")
    assert page.inner_text("#ask-error") == ""
    names = page.eval_on_selector_all("#any-question option", "all => all.map(each => each.value)")
    assert set(names) == SumSampler.questions
    page.select_option("#any-question", "rate")
    assert len(found(page, "rate")) == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_it_is_accessible_and_fits(
    open_page: Callable[..., sync_api.Page], theme: str, size: tuple[int, int]
) -> None:
    page = open_page(theme=theme, size=size)
    page.wait_for_selector("#quantile-chart canvas")
    page.wait_for_selector("tr[data-stream=ward-7] svg.spark")
    page.click("#curve-table summary")
    page.click("#count-panel summary")
    page.wait_for_selector("#count-panel .as-table table")
    violations = axe_playwright.Axe().run(page).response["violations"]
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    page.click("#curve-table summary")
    page.click("#count-panel summary")
    page.evaluate("() => scrollTo(0, 0)")
    picture(page, f"{theme}-{size[0]}.png", full_page=True)


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_decay_stays_in_reach_of_who_reads_the_answers(
    open_page: Callable[..., sync_api.Page], size: tuple[int, int]
) -> None:
    page = open_page(size=size)
    page.wait_for_selector("#quantile-chart canvas")
    page.locator("#any-title").scroll_into_view_if_needed()
    page.evaluate("() => scrollBy(0, 300)")
    slider = page.locator("#age-slider").bounding_box()
    assert slider is not None
    assert 0 <= slider["y"] < size[1] / 2
    covered = page.evaluate(
        "([x, y]) => document.elementFromPoint(x, y).id",
        [slider["x"] + slider["width"] / 2, slider["y"] + slider["height"] / 2],
    )
    assert covered == "age-slider"
    picture(page, f"scrolled-{size[0]}.png")


def test_a_stream_is_found_and_chosen_from_the_keyboard(
    open_page: Callable[..., sync_api.Page], site: Site
) -> None:
    for number in range(10):
        path = f"/v1/streams/bed-{number}"
        site.http.put(path, json={"params": PARAMS.to_dict()}).raise_for_status()
    page = open_page()
    page.wait_for_selector("#find:not([hidden])")
    page.fill("#find", "BED-7")
    page.focus("tr[data-stream=bed-7] button")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#stream-name').innerText === 'bed-7'")
    assert page.locator("#streams tbody tr").count() == 1
    assert page.get_attribute("tr[data-stream=bed-7] button", "aria-current") == "true"
    site.http.delete("/v1/streams/bed-7").raise_for_status()
    page.wait_for_function("() => document.querySelector('#stream-name').innerText !== 'bed-7'")


def test_the_theme_can_be_turned_and_is_kept(open_page: Callable[..., sync_api.Page]) -> None:
    page = open_page(theme="light")
    page.click("#theme")
    page.reload()
    page.wait_for_selector("[data-figure=count] .value")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.get_attribute("#theme", "aria-pressed") == "true"


def test_a_key_is_asked_for_and_kept_for_the_session(
    open_page: Callable[..., sync_api.Page], site: Site, tmp_path: Path
) -> None:
    with serving(tmp_path / "keys.sqlite3", DECAYSKETCH_AUTH="keys") as (url, http):
        held = mint(tmp_path / "keys.sqlite3")
        authorised = {"Authorization": f"Bearer {held}"}
        body = {"params": PARAMS.to_dict()}
        http.put("/v1/streams/ward-7", json=body, headers=authorised).raise_for_status()

        page = open_page(url=url)
        page.fill("#key", "ds_wrong")
        page.click("#key-form button")
        page.wait_for_function("() => /refused/.test(document.querySelector('#status').innerText)")
        page.fill("#key", held)
        page.click("#key-form button")
        page.wait_for_selector("[data-figure=count] .value")
        assert page.is_hidden("#key-form")
        assert page.evaluate("() => Object.values(sessionStorage)") == [held]
        elsewhere = page.evaluate("() => JSON.stringify(localStorage) + document.cookie + location")
        assert held not in elsewhere

        page.click("#forget-key")
        page.wait_for_selector("#key-form:not([hidden])")


SITES = {"hall": 60, "roof": 30, "gate": 5}
COLUMNS = {"temp": "float64", "site": "text"}
GROUPS = "#stream=fleet&kind=none&by=site&aggregate=mean&times=1"


@pytest.fixture(scope="module")
def fleet(site: Site) -> Site:
    """A stream with columns, of which one group is small, and an alert on each group."""
    created = {"params": {"time_unit": "s", "capacity": 60, "columns": COLUMNS}}
    site.http.put("/v1/streams/fleet", json=created).raise_for_status()
    rows = [
        {"id": k, "time": NEWEST - 60 * k, "columns": {"temp": 20 + 5 * i + k % 3, "site": name}}
        for i, (name, count) in enumerate(SITES.items())
        for k in range(100 * i, 100 * i + count)
    ]
    posted = site.http.post(
        "/v1/streams/fleet/observations", params={"source": "gw"}, json={"observations": rows}
    )
    posted.raise_for_status()
    spec = {"kind": "threshold", "question": "mean", "of": "temp", "by": ["site"], "above": 23.5}
    site.http.put("/v1/streams/fleet/monitors/hot", json=spec | {"decay": "none"})
    return site


def groups_of(page: sync_api.Page) -> dict[str, list[str]]:
    page.wait_for_selector("#groups tbody tr")
    found = page.eval_on_selector_all(
        "#groups tbody tr", "rows => rows.map(row => [row.dataset.group, row.dataset.small])"
    )
    return {json.loads(key)["site"]: small for key, small in found}


def test_a_late_fault_of_an_earlier_condition_stops_no_query(
    visit: Callable[..., sync_api.Page], fleet: Site
) -> None:
    page = visit(f"{fleet.url}/{GROUPS}", theme="light", size=WIDE)
    late: list[sync_api.Route] = []

    def hold(route: sync_api.Route) -> None:
        unfinished = '"where":"site =="' in (route.request.post_data or "")
        late.append(route) if unfinished else route.continue_()

    page.route("**/query", hold)
    page.fill("#where", "site ==")
    while not late:
        page.wait_for_timeout(20)
    page.fill("#where", "site == 'roof'")
    for each in late:
        each.continue_()
    page.wait_for_function("() => document.querySelectorAll('#groups tbody tr').length === 1")


@pytest.mark.parametrize(
    ("theme", "size"),
    [pytest.param("light", WIDE, marks=pytest.mark.exhaustive), ("dark", PHONE)],
)
def test_groups_are_filtered_drawn_and_passed_on(
    visit: Callable[..., sync_api.Page], fleet: Site, theme: str, size: tuple[int, int]
) -> None:
    page = visit(f"{fleet.url}/{GROUPS}", theme=theme, size=size)
    query = {"aggregate": "mean", "of": "temp", "by": ["site"], "decay": "none", "now": NEWEST}
    answer = fleet.http.post("/v1/streams/fleet/query", json={"queries": [query]}).json()
    told = {g["by"]["site"]: str(g["small"]).lower() for g in answer["answers"][0]["groups"]}
    assert groups_of(page) == told
    assert told["gate"] == "true"
    assert page.locator(".multiple").count() == len(told)
    # Column names and values are completed, by the keyboard alone.
    page.click("#where")
    page.keyboard.type("si")
    page.wait_for_selector(".options:not([hidden]) >> text=site")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type(" == 'r")
    page.wait_for_selector(".options:not([hidden]) li:has-text(\"'roof'\")")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("#where") == "site == 'roof'"
    page.wait_for_function("() => document.querySelectorAll('#groups tbody tr').length === 1")
    # The address opens the same view.
    again = visit(copied(page, "#share"), theme=theme, size=size)
    assert set(groups_of(again)) == {"roof"}
    with again.expect_download() as saving:
        again.click("[aria-label='CSV: the groups']")
    lines = Path(str(saving.value.path())).read_text().splitlines()
    assert (len(lines), lines[1].split(",")[0]) == (2, "roof")
    again.fill("#where", "site == roof")
    again.wait_for_selector("#where-error:not(:empty)")
    assert again.get_attribute("#where", "aria-invalid") == "true"
    page.fill("#where", "")
    page.wait_for_function("() => document.querySelectorAll('#groups tbody tr').length === 3")
    picture(page, f"groups-{theme}-{size[0]}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    violations = axe_playwright.Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["target"]) for each in violations] == []


def test_the_groups_of_an_alert_have_states_and_their_own_past(
    visit: Callable[..., sync_api.Page], fleet: Site
) -> None:
    page = visit(f"{fleet.url}/#stream=fleet&view=alerts&alert=hot")
    page.wait_for_selector("#alert .groups-of tr[data-group]")
    found = page.eval_on_selector_all(
        "#alert .groups-of tr[data-group]",
        "rows => rows.map(row => [row.dataset.group, row.dataset.state])",
    )
    shown = {json.loads(key)["site"]: state for key, state in found}
    assert (shown["roof"], shown["hall"]) == ("firing", "calm")
    page.click("#alert .groups-of button >> text=site=roof")
    page.wait_for_selector("text=States of site=roof in the last 24 hours")
    page.wait_for_selector("#alert .changes >> text=The mean of temp for site=roof is")
    assert axe_playwright.Axe().run(page).response["violations"] == []


def test_times_may_be_those_of_the_machine(browser: sync_api.Browser, site: Site) -> None:
    page = patient(browser.new_context(timezone_id="Asia/Tokyo", reduced_motion="reduce"))
    page.goto(f"{site.url}/{WARD}")
    page.wait_for_selector("[data-figure=count] .value")
    assert page.input_value("#now-text") == "2025-06-15 15:06:40"
    page.select_option("#zone", "local")
    page.wait_for_function("() => /local/.test(document.querySelector('#now-zone')?.innerText)")
    sync_api.expect(page.locator("#now-text")).to_have_value("2025-06-16 00:06:40")
    page.fill("#now-text", "2025-06-16 00:00:00")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "now => document.querySelector('[data-figure=count]').dataset.now === now",
        arg=str(NEWEST - 400),
    )
    page.context.close()
