"""An integral sketch is told the time with what it takes in, and merges with those of its decay."""

from __future__ import annotations

import random

import pytest

import decaysketch as ds
from decaysketch.decay import integral


def test_a_decay_must_be_shared_and_said_alike() -> None:
    of = ds.SketchParams(max_weight=9, id_bits=10)
    sketch = ds.IntegralDecaySketch(of, integral.window(10))
    digest = sketch.digest()
    other = ds.IntegralDecaySketch(of, integral.window(11))
    with pytest.raises(ds.IncompatibleSketchError, match=r"decay: .*window\(10\).*window\(11\)"):
        sketch.merge(other)
    same = integral.fractions([1] * 11)  # says window(10) in another way: other bytes
    with pytest.raises(ds.IncompatibleSketchError, match="decay: "):
        sketch.merge(ds.IntegralDecaySketch(of, same))
    assert sketch.digest() == digest


def test_single_observations_told_the_time_are_a_batch() -> None:
    """They are gathered; the clock is told at once, and a bad time or row changes nothing."""
    of = ds.SketchParams(max_weight=50, id_bits=20, capacity=40, seed=3)
    decay = integral.exponential(rate=0.05)
    rng = random.Random(8)
    rows = [
        (rng.random(), rng.randint(1, 50), rng.randrange(200), rng.randrange(900), k // 6)
        for k in range(1200)
    ]
    one_by_one, whole = ds.IntegralDecaySketch(of, decay), ds.IntegralDecaySketch(of, decay)
    for *row, now in rows:
        one_by_one.update(*row, now=now)
        assert one_by_one.clock == now
    whole.update(*([row[k] for row in rows] for k in range(4)))
    whole.advance(rows[-1][-1])
    assert one_by_one.stats().fed == 1200
    before = one_by_one.digest()
    assert before == whole.digest()
    with pytest.raises(ds.ParameterError, match=r"now is 1\.5"):
        one_by_one.update(1.0, 2, 300, 1, now=1.5)  # type: ignore[arg-type]
    with pytest.raises(ds.ObservationError):
        one_by_one.update(1.0, 51, 300, 1, now=400)
    assert one_by_one.digest() == before
    assert one_by_one.sum(now=250).value == whole.sum(now=250).value
    one_by_one.update(1.0, 50, 250, 1)  # waits, and is there when asked
    assert one_by_one.sum(now=250).value > whole.sum(now=250).value
