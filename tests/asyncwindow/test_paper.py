"""The samplers hold and answer what the paper's procedures do, and what its lemmas promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from asyncwindow import elements
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import Case, cases, small_bags

import decaysketch as ds
from decaysketch.asyncwindow import (
    SumSampler,
)
from decaysketch.asyncwindow import reference as paper
from decaysketch.core.observations import decode_values

LAW = settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(autouse=True, scope="module")
def overflowing() -> Any:
    with small_bags():
        yield


@LAW
@given(cases("sum", "median"))
def test_samples_are_those_of_the_papers_procedures(case: Case) -> None:
    params, rows, clock = case.params, case.rows, max(case.told, default=None)
    state = case.fed().state()
    sketch = elements.reference_of(params, elements.keyed(params, rows), clock)
    assert elements.samples_of(state) == elements.reference_samples(sketch)


@LAW
@given(cases("sum", "median"), st.data())
def test_merging_is_the_papers_union(case: Case, data: st.DataObject) -> None:
    params, rows, clock = case.params, case.rows, max(case.told, default=None)
    cut = data.draw(st.integers(0, len(rows)))
    parts = rows[:cut], rows[cut:]
    merged = case.fed(parts[0])
    merged.merge(case.fed(parts[1], told=[]))
    sketches = (
        elements.reference_of(params, elements.keyed(params, part), c)
        for part, c in zip(parts, (clock, None), strict=True)
    )
    assert elements.samples_of(merged.state()) == elements.reference_samples(paper.union(*sketches))


@LAW
@given(cases("sum", "median"), st.integers(0, 400), st.integers(-310, 310))
def test_single_level_answers_are_those_of_the_papers_queries(
    case: Case, width: int, now: int
) -> None:
    params, rows, clock = case.params, case.rows, max(case.told, default=None)
    width = width if params.max_window is None else min(width, params.max_window)
    sampler = case.fed()
    sketch = elements.reference_of(params, elements.keyed(params, rows), clock)
    decay = ds.decay.window(width)
    ask = paper.sum_query if params.weighted else paper.median_query
    expected = ask(sketch, width, now)
    if expected is None:
        with pytest.raises(ds.UnanswerableQueryError):
            sampler.count(decay, now=now, estimator="single-level")
        return
    answer, level = expected
    if isinstance(sampler, SumSampler):
        found = sampler.sum(decay, now=now, estimator="single-level")
        assert found.value == pytest.approx(float(answer), rel=1e-12)
    else:
        found = sampler.median(decay, now=now, estimator="single-level")
        if answer is None:
            assert found.value != found.value
        else:
            value, _ = decode_values(_column(int(answer)), params.value_type)
            assert found.value == float(value[0])
    assert found.exact == (level == 0)


@LAW
@given(cases("sum", "median"), st.integers(0, 400), st.integers(-310, 310))
def test_windows_of_at_most_alpha_elements_are_exact(case: Case, width: int, now: int) -> None:
    """Lemmas 4 and 14, for windows that nothing is later than."""
    params, rows, clock = case.params, case.rows, max(case.told, default=None)
    width = width if params.max_window is None else min(width, params.max_window)
    rows = [row for row in rows if row.time <= now]
    clock = None if clock is None else min(clock, now)
    sampler = case.fed(rows, told=[] if clock is None else [clock])
    everything = elements.definition(params.with_capacity(1 << 20), rows, clock).rows
    window = [(t, v) for t, _, v, _ in everything if now - width <= t]
    if len(window) > params.capacity:
        return
    for estimator in ("stratified", "single-level"):
        count = sampler.count(ds.decay.window(width), now=now, estimator=estimator)
        assert (count.value, count.exact) == (len(window), True)
        if isinstance(sampler, SumSampler):
            total = sampler.sum(ds.decay.window(width), now=now, estimator=estimator)
            assert (total.value, total.exact) == (sum(v for _, v in window), True)
        elif window:
            q = sampler.median(ds.decay.window(width), now=now, estimator=estimator)
            middle = sorted(v for _, v in window)[(len(window) - 1) // 2]
            expected, _ = decode_values(_column(middle), params.value_type)
            assert (q.value, q.exact) == (float(expected[0]), True)


@LAW
@given(cases("sum", "median"), st.integers(-(1 << 61), -400))
def test_one_late_element_never_disturbs_what_is_kept(case: Case, late: int) -> None:
    sampler = case.fed([row._replace(time=row.time % 300) for row in case.rows], told=[])
    before = elements.described(sampler.state())
    one = 1 if case.params.value_type == "int64" else 1.0
    sampler.update(one, late, 7, source="a source of its own")
    after = elements.described(sampler.state())
    assert set(before.rows) <= set(after.rows)
    assert len(after.rows) <= len(before.rows) + 1
    # A watermark may be set at the late time itself, where its level was full; none rises further.
    assert all(
        b == a or a == late for b, a in zip(before.watermarks, after.watermarks, strict=True)
    )


def _column(value: int) -> Any:
    return np.array([value], dtype=np.int64)
