"""The page on streams that count keys: top keys, one key over time, and how skewed they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import numpy as np
import pytest

import decaysketch as ds
from decaysketch.client.functions import FunctionSensor
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch

from .conftest import NEWEST, OCTETS, patient, picture, serving, sync_api

NUMBERS = ECMParams(width=120, depth=3, slots=8, horizon=86_400, key_bits=20, seed=3)
TEXTS = ECMParams(width=80, depth=3, slots=8, seed=3)
ENDS_AT = """count => {
    const last = document.querySelector("#key-panel").dataset.last;
    return last !== undefined && Math.abs(last - count) <= 1e-6 * count;
}"""
NAMES = ("ada", "bob", "eve", "zoe", "7")


@dataclass(frozen=True)
class Keys:
    """A running aggregator, and the collections of its streams ``talkers`` and ``names``."""

    url: str
    numbers: ECMCollection
    texts: ECMCollection


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    draw = np.random.default_rng(5)
    with serving(tmp_path_factory.mktemp("keys") / "data.sqlite3") as (url, http):
        numbers, texts = ECMCollection(NUMBERS), ECMCollection(TEXTS)
        for site in ("north", "south"):
            times = np.sort(NEWEST - draw.integers(0, 7200, 6000))
            times[-1] = NEWEST
            talkers = draw.zipf(1.4, 6000) % 5000
            counted = ECMSketch(NUMBERS, source=site, epoch=1)
            counted.update(talkers, times)
            numbers.merge(counted)
            named = ECMSketch(TEXTS, source=site, epoch=1)
            named.update([NAMES[each % 5] for each in talkers[:500]], times[-500:])
            texts.merge(named)
        for name, collection in (("talkers", numbers), ("names", texts)):
            created = {"family": "ecm", "params": collection.params.to_dict()}
            http.put(f"/v1/streams/{name}", json=created).raise_for_status()
            _post(http, name, collection)
        yield Keys(url, numbers, texts)


def _post(http: httpx2.Client, stream: str, collection: ECMCollection) -> None:
    http.post(
        f"/v1/streams/{stream}/sketches",
        params={"source": "a"}, content=collection.to_bytes(), headers=OCTETS,
    ).raise_for_status()  # fmt: skip


@pytest.fixture
def open_page(browser: sync_api.Browser, keys: Keys) -> Iterator[Any]:
    contexts = []
    faults: list[str] = []

    def opened(stream: str, size: tuple[int, int] = (1280, 900), theme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme
        )
        contexts.append(context)
        page = patient(context)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console",
            lambda message: faults.append(message.text) if message.type == "error" else None,
        )
        page.goto(f"{keys.url}/#stream={stream}")
        page.wait_for_selector("[data-figure=key_total] .value")
        page.wait_for_selector("#skew .skew-says")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def decay_of(page: Any) -> ds.Decay:
    shown = page.eval_on_selector(
        "[data-figure=key_total]", "each => JSON.parse(each.dataset.decay)"
    )
    assert shown["kind"] in ("window", "exponential")
    if shown["kind"] == "window":
        return ds.decay.window(shown["width"])
    return ds.decay.exponential(half_life=shown["half_life"])


def test_top_keys_are_those_of_the_library(open_page: Any, keys: Keys) -> None:
    page = open_page("talkers")
    decay = decay_of(page)
    expected = list(keys.numbers.heavy_keys(0.02, decay, now=NEWEST, limit=12))
    rows = page.eval_on_selector_all(
        "#keys tbody tr", "rows => rows.map(row => ({...row.dataset}))"
    )
    assert len(rows) == min(12, len(expected)) > 3
    for row, each in zip(rows, expected, strict=True):
        assert int(row["key"]) == each.key
        assert float(row["count"]) == pytest.approx(each.count.value, rel=1e-12)
        assert row["certain"] == str(each.certain).lower()
    text = page.inner_text("#keys")
    assert "≤" in text
    found = keys.numbers.heavy_prefixes(0.02, decay, now=NEWEST, limit=100)
    likely = [each for each in found if each.discounted.upper >= found.threshold]
    rows = page.eval_on_selector_all(
        "#prefixes tbody tr", "rows => rows.map(row => ({...row.dataset}))"
    )
    assert [(int(row["prefix"]), int(row["bits"])) for row in rows] == [
        (each.prefix, each.bits) for each in likely[:12]
    ]
    few = page.locator("#keys tbody tr").count()
    page.select_option("#keys-phi", "0.1")
    page.wait_for_function(
        "few => document.querySelectorAll('#keys tbody tr').length < few", arg=few
    )


def test_functions_across_sources(open_page: Any, keys: Keys) -> None:
    path = "/v1/streams/talkers/functions/skew"
    spec = {"kind": "self_join", "decay": "window(2h)", "theta": 0.2, "sites": ["a", "b"]}
    with httpx2.Client(base_url=keys.url, timeout=60) as http:
        http.put(path, json=spec).raise_for_status()
        sensor = FunctionSensor(http, "talkers", "skew", "a", ECMSketch(NUMBERS))
        sensor.update(np.arange(50, dtype=np.uint64), np.full(50, NEWEST))
        assert sensor.step(NEWEST)
    page = open_page("talkers")
    page.goto(f"{keys.url}/#stream=talkers&view=lists")
    page.wait_for_selector("#functions [data-function=skew][data-certain=false]")
    said = page.inner_text("#functions")
    assert "Self-join" in said
    assert "not certain" in said
    assert "b" in page.get_attribute("#functions [data-function=skew]", "data-silent")
    picture(page.locator("#functions"), "functions.png")
    page.click("button[aria-label='Delete skew']")
    page.click("dialog button.danger")
    page.wait_for_selector("#functions [data-function=skew]", state="detached")


def test_one_key_over_time(open_page: Any, keys: Keys) -> None:
    page = open_page("talkers")
    first = page.get_attribute("#keys tbody tr", "data-key")
    page.wait_for_function("() => document.querySelector('#key-panel').dataset.points > 1")
    assert page.input_value("#one-key") == first
    second = page.locator("#keys tbody tr .pick").nth(1)
    chosen = second.inner_text()
    second.click()
    assert page.input_value("#one-key") == chosen
    count = keys.numbers.key_count(int(chosen), decay_of(page), now=NEWEST).value
    page.wait_for_function(ENDS_AT, arg=count)
    label = page.get_attribute("#key-chart", "aria-label")
    assert "One key over time" in label


def test_the_gauge_is_the_self_join_over_the_square_of_the_total(
    open_page: Any, keys: Keys
) -> None:
    page = open_page("talkers")
    decay = decay_of(page)
    total = keys.numbers.key_total(decay, now=NEWEST)
    join = keys.numbers.self_join(decay, now=NEWEST)
    shown = page.eval_on_selector("#skew", "each => ({...each.dataset})")
    assert float(shown["value"]) == pytest.approx(join.value / total.value**2, rel=1e-12)
    assert float(shown["lower"]) <= float(shown["value"]) <= float(shown["upper"]) <= 1
    assert "evenly" in page.inner_text("#skew")


def test_keys_that_are_texts_are_asked_by_name(open_page: Any, keys: Keys) -> None:
    page = open_page("names")
    assert page.locator("#keys-panel").is_hidden()
    assert page.inner_text("#key-panel .note") == "Write a key."
    for text, key in (("ada", "ada"), ('"7"', "7")):
        page.fill("#one-key", text)
        count = keys.texts.key_count(key, decay_of(page), now=NEWEST).value
        page.wait_for_function(ENDS_AT, arg=count)


def test_any_question_about_keys(open_page: Any, keys: Keys) -> None:
    page = open_page("talkers")
    for name in ("key_count", "heavy_keys", "key_quantile", "inner_product", "key_range"):
        page.select_option("#any-question", name)
        page.wait_for_function(
            "name => document.querySelector('#any-panel .found').dataset.aggregate === name",
            arg=name,
        )
        assert page.inner_text("#any-error") == ""
    page.select_option("#any-question", "key_count")
    page.fill("#any-panel input[name=keys]", "1, 2 3")
    page.wait_for_function("() => document.querySelector('#any-panel .found').dataset.rows == 3")


@pytest.mark.parametrize(("size", "width"), [((1280, 900), "wide"), ((390, 844), "phone")])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures(open_page: Any, size: tuple[int, int], width: str, theme: str) -> None:
    page = open_page("talkers", size, theme)
    page.wait_for_function("() => document.querySelector('#key-panel').dataset.points > 1")
    picture(page, f"keys-{width}-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
