"""What is looked for is in sight, stands in its column, and is said once and in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import decaysketch as ds

from .conftest import NEWEST, OCTETS, PARAMS, SAID, Site, sync_api

PHONE = (390, 844)
MANY = 14
LABELS = replace(PARAMS, value_type="label")
WEIGHED = replace(LABELS, max_weight=9)

# Where the contents of cells begin and end, across; what stands before them is no content.
ACROSS = """cells => cells.map(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const {left, right} = range.getBoundingClientRect();
    return [left, right];
})"""
BOX = "each => each.getBoundingClientRect().toJSON()"


@pytest.fixture(scope="module")
def streams(site: Site) -> Site:
    """Many streams of a few readings; of labels, with weights and without; one of nothing."""

    def make(name: str, params: ds.SketchParams, values: Any, weights: Any = 1) -> None:
        sketch = ds.DecaySketch(params)
        ages = 60 * np.arange(len(values))
        sketch.update(values, weights, NEWEST - ages, np.arange(len(values)))
        site.http.put(f"/v1/streams/{name}", json={"params": params.to_dict()}).raise_for_status()
        site.http.post(
            f"/v1/streams/{name}/sketches?source=a", content=sketch.to_bytes(), headers=OCTETS
        ).raise_for_status()

    for number in range(MANY):
        make(f"aa-{number:02d}", PARAMS, [1.0, 2.0, 4.0])
    make("labels", LABELS, ["up", "up", "down"])
    make("weighed", WEIGHED, ["up", "up", "down"], [3, 2, 9])
    site.http.put("/v1/streams/bare", json={"params": PARAMS.to_dict()}).raise_for_status()
    return site


@pytest.fixture
def look(visit: Callable[..., sync_api.Page], streams: Site) -> Callable[..., sync_api.Page]:
    """The page on a stream, its figures shown."""

    def opened(stream: str, **how: Any) -> sync_api.Page:
        page = visit(f"{streams.url}/#stream={stream}", **how)
        page.wait_for_selector("[data-figure] .value")
        return page

    return opened


def box(page: sync_api.Page, selector: str) -> dict[str, float]:
    found: dict[str, float] = page.eval_on_selector(selector, BOX)
    return found


@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_the_row_of_the_chosen_stream_is_in_sight_and_stays(
    look: Callable[..., sync_api.Page], size: tuple[int, int]
) -> None:
    page = look("ward-7", size=size)
    row = "#streams tr.chosen"
    page.wait_for_selector(f"{row} svg.spark")
    page.wait_for_load_state("networkidle")  # every sparkline that is in sight
    listed, chosen = box(page, ".scroll:has(> #streams)"), box(page, row)
    assert page.eval_on_selector(".scroll:has(> #streams)", "box => box.scrollTop") > 0
    assert listed["top"] <= chosen["top"]
    assert chosen["bottom"] <= listed["bottom"] + 0.5
    assert page.evaluate("scrollY") == 0
    page.eval_on_selector(".scroll:has(> #streams)", "box => { box.scrollTop = 0; }")
    page.wait_for_timeout(3_500)  # the next look at the streams moves nothing
    assert page.eval_on_selector(".scroll:has(> #streams)", "box => box.scrollTop") == 0


def test_the_list_of_streams_fits_between_a_phone_and_a_desk(
    look: Callable[..., sync_api.Page],
) -> None:
    page = look("ward-7")
    page.wait_for_selector("tr.chosen svg.spark")
    page.wait_for_selector("tr.chosen .spark-value")
    count = page.inner_text("[data-figure=count] .value")
    assert page.inner_text("tr.chosen .spark-value") == count
    fits = "box => box.scrollWidth <= box.clientWidth"
    for width in (761, 820, 960, 961, 1100, 1101, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.eval_on_selector(".scroll:has(> #streams)", fits), width
        assert box(page, "tr.chosen")["height"] < 50, width
        assert box(page, "tr.chosen .name")["height"] < 30, width  # in one line


VALUES = [
    ([20.001, 20.002, 20.003], 0.001),
    ([0, 2.5, 5, 7.5], 2.5),
    ([0.1, 0.2, 0.1 + 0.2], 0.1),
    ([1_000_250, 1_000_500, 1_000_750], 250),
    ([1234.5, 1235, 1235.5], 0.5),
    ([-1e-7, 0, 1e-7], 1e-7),
    ([0, 500_000, 1_000_000], 500_000),
]


def test_no_two_values_of_an_axis_read_alike(functions: sync_api.Page) -> None:
    labels = (
        "async ([values, step]) => (await import('/assets/units.js')).valueLabels(values, step)"
    )
    for values, step in VALUES:
        written = functions.evaluate(labels, [values, step])
        assert len(set(written)) == len(values), written
        assert max(map(len, written)) <= 9, written  # as the axis has room for


TIMES = [
    (0.25, ["15:06:40.00\nJun 15", "15:06:40.25", "15:06:40.50"]),
    (0.1, ["15:06:40.0\nJun 15", "15:06:40.1", "15:06:40.2"]),
    (0.02, ["15:06:40.00\nJun 15", "15:06:40.02", "15:06:40.04"]),
    (1e-4, ["15:06:40.000\nJun 15", "", ""]),  # below what is written: once
    (20, ["15:06:40\nJun 15", "15:07:00", "15:07:20"]),
    (600, ["15:06\nJun 15", "15:16", "15:26"]),
]


def test_no_two_times_of_an_axis_read_alike(functions: sync_api.Page) -> None:
    labels = "async ([at, step]) => (await import('/assets/units.js')).timeLabels(at, step)"
    for step, expected in TIMES:
        times = [NEWEST + i * step for i in range(3)]
        assert functions.evaluate(labels, [times, step]) == expected


@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_an_axis_has_room_for_its_last_time_and_the_thumb_is_above_it(
    look: Callable[..., sync_api.Page], size: tuple[int, int]
) -> None:
    page = look("ward-7", size=size)
    page.wait_for_selector("#count-chart canvas")
    plot, whole = box(page, "#count-chart .u-over"), box(page, "#count-chart canvas")
    assert whole["right"] - plot["right"] >= 18  # half of "15:00", or of "Jun 15"
    thumb, slider = 22, box(page, "#now-slider")
    assert slider["right"] - thumb / 2 == pytest.approx(plot["right"], abs=1.5)
    assert slider["left"] + thumb / 2 == pytest.approx(plot["left"], abs=1.5)


@pytest.mark.parametrize(("stream", "figures"), [("labels", 1), ("weighed", 2)])
def test_of_labels_without_weights_the_count_is_not_said_twice(
    look: Callable[..., sync_api.Page], stream: str, figures: int
) -> None:
    page = look(stream)
    assert page.locator("[data-figure]").count() == figures
    card, all_ = box(page, "[data-figure]"), box(page, "#figures")
    assert card["width"] == pytest.approx(all_["width"], rel=0.01 if figures == 1 else 0.6)


def test_nothing_is_not_exact_and_the_same_is_no_matter_of_chance(
    look: Callable[..., sync_api.Page],
) -> None:
    page = look("bare")
    page.wait_for_selector("#any-panel .found[data-aggregate=histogram] td")
    assert "exact" not in page.inner_text("#any-panel .found")
    page.wait_for_selector("#versus tr[data-compared=mean]")
    mean = page.inner_text("#versus tr[data-compared=mean]")
    assert "exact" not in mean
    assert page.inner_text("#versus tr[data-compared=count] [data-label=Changed]") == "the same"
    page = look("aa-00")
    page.wait_for_selector("#quantile-chart canvas")
    longest = page.locator("#range option").last.get_attribute("value")
    page.select_option("#range", longest)
    page.click("#quantile-panel summary")
    page.wait_for_selector("#quantile-panel tbody tr >> nth=0 >> text='–' >> nth=0")
    first = page.inner_text("#quantile-panel tbody tr >> nth=0").split("\t")
    assert set(first[1:]) == {"–"}  # before the first reading
    assert "exact" in page.inner_text("#quantile-panel tbody tr >> nth=-1")


@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_an_answer_beside_rows_stands_in_the_columns_of_the_rows(
    look: Callable[..., sync_api.Page], size: tuple[int, int]
) -> None:
    page = look("ward-7", size=size)
    page.wait_for_selector("#any-panel .found[data-aggregate=histogram] td")
    bins = page.locator("#any-panel .found tbody >> nth=0").locator("tr >> nth=0").locator("td")
    below = page.locator("#any-panel .found tr:has(> th:text-is('below')) td")
    edges = [[right for _, right in cells.evaluate_all(ACROSS)] for cells in (bins, below)]
    assert edges[1] == pytest.approx(edges[0][-2:], abs=1)
    page.select_option("#any-question", "group_by")
    page.wait_for_selector("#any-panel .found[data-aggregate=group_by] td")
    assert page.locator("#any-panel .found th:text-is('below')").count() == 0
    assert page.inner_text("#any-panel .found p.hint:not([hidden]) >> nth=-1").startswith(
        "total groups: "
    )


@pytest.mark.parametrize(("stream", "view"), [("ward-7", "sources"), ("ward-7", "answers")])
def test_what_a_card_says_on_a_phone_begins_in_one_line(
    look: Callable[..., sync_api.Page], streams: Site, stream: str, view: str
) -> None:
    path = f"/v1/streams/{stream}/sketches"
    refused = streams.http.post(path, params={"source": "late"}, content=b"no", headers=OCTETS)
    assert refused.status_code == 422
    page = look(stream, size=PHONE)
    page.check(f"#views input[value={view}]")
    host = {"sources": "#sources .found", "answers": "#versus"}[view]
    page.wait_for_selector(f"{host} tbody td")
    cells = page.locator(f"{host} tbody td:not(:empty)").evaluate_all(ACROSS)
    assert len(cells) >= 6
    assert {round(left) for left, _ in cells} == {round(cells[0][0])}
    panel = box(page, host)
    assert max(right for _, right in cells) <= panel["right"] + 0.5
    assert page.eval_on_selector(host, "box => box.scrollWidth <= box.clientWidth")


def test_on_a_phone_the_head_is_one_line_and_headings_in_two_do_not_lie_on_each_other(
    look: Callable[..., sync_api.Page],
) -> None:
    page = look("aa-00", size=PHONE)
    name, buttons = box(page, "h1"), box(page, ".top-buttons")
    assert name["top"] < buttons["bottom"]
    assert buttons["top"] < name["bottom"]
    page.click("#all-streams")
    page.eval_on_selector(".scroll:has(> #streams)", "box => { box.scrollTop = 30; }")
    headings = page.locator("#streams thead button").evaluate_all(
        "all => all.map(each => each.getBoundingClientRect().toJSON())"
    )
    assert len({round(each["top"]) for each in headings}) == 2
    first, second = sorted({(each["top"], each["bottom"]) for each in headings})
    assert first[1] <= second[0]


@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_buttons_do_not_lie_on_what_is_said_in_place_of_a_chart(
    look: Callable[..., sync_api.Page], size: tuple[int, int]
) -> None:
    page = look("alarms", size=size)
    page.wait_for_selector("#count-panel.without-chart .note")
    said, buttons = box(page, "#count-panel .note"), box(page, "#count-panel .takings")
    assert said["bottom"] <= buttons["top"]


def test_a_while_that_a_stream_does_not_reach_back_for_is_not_offered(
    look: Callable[..., sync_api.Page],
) -> None:
    page = look("tap-sums")  # windows of up to an hour
    page.wait_for_selector("#versus tr[data-compared=sum]")
    disabled = "all => all.map(each => [each.value, each.disabled])"
    offered = dict(page.eval_on_selector_all("#versus-ago option", disabled))
    assert offered == {"600": False, "3600": True, "86400": True, "604800": True, "rows": True}
    assert page.input_value("#versus-ago") == "600"
    page.fill("#age-text", "55 min")
    page.wait_for_selector("#versus-panel .note:not([hidden])")
    said = page.inner_text("#versus-panel .note")
    assert "3900" in said  # both together reach beyond it
    assert "queries" not in said
    page.click("tr[data-stream=ward-7] button")
    page.wait_for_function("() => document.querySelector('#stream-name').innerText === 'ward-7'")
    page.wait_for_selector("#versus-ago option[value='604800']:not([disabled])", state="attached")


@pytest.mark.parametrize(
    ("stream", "panel", "words"),
    [
        ("bare", "hitters", ("Copied", "Nothing to save")),
        ("alarms", "count", ("Nothing asked yet", "Nothing to save")),  # it has no past to draw
    ],
)
def test_a_button_that_has_nothing_to_take_says_so(
    look: Callable[..., sync_api.Page], stream: str, panel: str, words: tuple[str, str]
) -> None:
    """Least of all does it take what was shown of the stream that was looked at before."""
    page = look("ward-7")
    page.wait_for_selector("#hitters tbody tr")
    page.wait_for_selector("#count-chart canvas")
    page.click(f"tr[data-stream={stream}] button")
    page.wait_for_selector("#hitters[data-count='0']")
    taken: list[Any] = []
    page.on("download", lambda download: taken.append(download))
    for number, said in enumerate(words):
        button = page.locator(f"#{panel}-panel .takings button").nth(number)
        label = button.inner_text()
        button.evaluate(SAID)
        for times in (1, 2):  # the second while it is said
            button.click()
            page.wait_for_function(
                "([each, said, times]) => each.said.filter(text => text === said).length >= times",
                arg=[button.element_handle(), said, times],
            )
        sync_api.expect(button).to_have_text(label)
    assert taken == []


def test_a_refusal_does_not_speak_of_the_queries_of_a_request(functions: sync_api.Page) -> None:
    reason = functions.evaluate(
        "async error => (await import('/assets/http.js')).reasonOf(error)",
        {"status": 422, "message": "queries[3].q: between 0 and 1"},
    )
    assert reason == "q: between 0 and 1"
