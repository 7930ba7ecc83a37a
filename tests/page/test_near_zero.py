"""Numbers near zero, and their errors: as the interval leaves meaning to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decaysketch as ds

from .conftest import NEWEST, OCTETS, PARAMS, Site, sync_api

UNITS = "const {told} = await import('/assets/units.js');"


@pytest.mark.parametrize(
    ("value", "lower", "upper", "written"),
    [
        (3.2e-5, -0.5, 0.5, "0.00"),
        (-3.2e-5, -0.5, 0.5, "0.00"),  # zero has no sign
        (-0.004, -1.0, 1.1, "0.0"),
        (3.2e-5, 3.1e-5, 3.3e-5, "3.200 e-5"),  # that is no zero
        (-0.4, -0.5, -0.3, "-0.40"),
        (0, -2, 2, "0.0"),
        (14.01725291, 14.01725290, 14.01725292, "14.02"),  # rounding is no width to speak of
    ],
)
def test_a_number_near_zero_is_written_as_its_interval_tells_it(
    functions: sync_api.Page, value: float, lower: float, upper: float, written: str
) -> None:
    estimate = {"value": value, "lower": lower, "upper": upper, "exact": False}
    told = functions.evaluate(f"async estimate => {{ {UNITS} return told(estimate); }}", estimate)
    assert told == written


@pytest.mark.parametrize(
    ("value", "half", "written"),
    [
        (14.01725291, 1.3e-13, "± < 0.001\u00a0%"),  # rounding, and not exact
        (-14.01725291, 1.3e-13, "± < 0.001\u00a0%"),
        (2_000.0, 0.0199, "± < 0.001\u00a0%"),
        (2_000.0, 0.0246, "± 0.00123\u00a0%"),
        (20.0, 0.5, "± 2.5\u00a0%"),
        (20.0, 0.0, None),
    ],
)
def test_an_error_of_rounding_alone_has_neither_twelve_digits_nor_none(
    functions: sync_api.Page, value: float, half: float, written: str | None
) -> None:
    ends = {"lower": value - half, "upper": value + half}
    spread = functions.evaluate(
        """async estimate => {
            const {spreadOf} = await import('/assets/panels.js');
            return spreadOf(estimate);
        }""",
        {"value": value, "exact": False} | ends,
    )
    assert spread == written


@pytest.mark.parametrize(
    ("estimate", "spread"),
    [
        ({"value": 50, "lower": 45, "upper": 55}, "10\u00a0%"),
        ({"value": 0.02, "lower": -1, "upper": 1.04}, "1.0"),  # as 0.0 is
        ({"value": 0, "lower": -2, "upper": 2}, "2.0"),
        ({"value": 3, "lower": -40, "upper": 50}, "45"),
    ],
)
def test_near_zero_an_error_is_told_as_it_is(
    functions: sync_api.Page, estimate: dict[str, float], spread: str
) -> None:
    told = functions.evaluate(
        """async estimate => {
            const host = document.createElement("div");
            const panels = await import("/assets/panels.js");
            panels.showFigures(host, [{id: "x", label: "x", estimate}], {});
            return host.querySelector(".spread-of").textContent;
        }""",
        {**estimate, "exact": False},
    )
    assert told == f"± {spread}"


def test_zero_has_no_sign(functions: sync_api.Page) -> None:
    numbers = "const {number} = await import('/assets/units.js');"
    told = functions.evaluate(f"async () => {{ {numbers} return [-0, 0, -7].map(number); }}")
    assert told == ["0", "0", "-7"]


@pytest.fixture
def around_zero(site: Site) -> Any:
    """A stream of readings whose mean is nearly zero; the sketch of it."""
    draw = np.random.default_rng(8)
    values = draw.normal(0, 5, 4_000)
    values -= values.mean()
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(values, 1, NEWEST - draw.integers(0, 7_200, 4_000), np.arange(4_000))
    stream = "/v1/streams/anomaly"
    site.http.put(stream, json={"params": PARAMS.to_dict()}).raise_for_status()
    site.http.post(
        f"{stream}/sketches?source=a", content=sketch.to_bytes(), headers=OCTETS
    ).raise_for_status()
    yield sketch
    site.http.delete(stream).raise_for_status()


def test_a_mean_near_zero_has_an_error_in_its_own_unit_and_no_share(
    visit: Callable[..., sync_api.Page], site: Site, around_zero: ds.DecaySketch
) -> None:
    page = visit(f"{site.url}/#stream=anomaly")
    page.check("input[name=kind][value=none]")
    page.wait_for_selector("[data-figure=mean][data-decay*=none]")
    mean = around_zero.mean(ds.decay.none(), now=NEWEST)
    assert mean.lower < 0 < mean.upper
    half = (mean.upper - mean.lower) / 2
    spread = page.inner_text("[data-figure=mean] .spread-of")
    assert "%" not in spread
    assert float(spread.removeprefix("± ")) == pytest.approx(half, rel=0.05)
    value = page.inner_text("[data-figure=mean] .value")
    digits = [len(text.partition(".")[2]) for text in (value, spread)]
    assert digits[0] == digits[1] > 0  # in the same digits
    assert "%" in page.inner_text("[data-figure=count] .spread-of")  # a share means something there
    assert page.inner_text("[data-figure=mean] .bounds").count("-") == 1  # of the lower end alone
