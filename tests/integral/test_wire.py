"""Bytes of the integral sketch that no honest builder wrote, field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.decay import integral
from decaysketch.integral import wire
from decaysketch.integral.state import NO_CLOCK, IntegralState
from quality.damage import sealed

OF = ds.SketchParams(max_weight=20, id_bits=16, capacity=30, seed=7, value_type="int64")
DECAY = integral.exponential(rate=0.02)


def sketch_of(rows: int = 400, clock: int | None = 120) -> ds.IntegralDecaySketch:
    rng = np.random.default_rng(rows)
    sketch = ds.IntegralDecaySketch(OF, DECAY)
    ids = rng.choice(1 << OF.id_bits, rows, replace=False)
    sketch.update(
        rng.integers(0, 9, rows), rng.integers(1, 21, rows), rng.integers(0, 150, rows), ids
    )
    if clock is not None:
        sketch.advance(clock)
    return sketch


def changed(state: IntegralState, **fields: Any) -> IntegralState:
    columns = {name: getattr(state, name) for name in IntegralState.__dataclass_fields__}
    return IntegralState(**(columns | fields))


def test_rows_that_cannot_have_been_kept() -> None:
    state = sketch_of().state()
    later = changed(state, clock=300, watermarks=np.maximum(state.watermarks, 300))
    with pytest.raises(ds.CorruptSketchError, match="rows expire at every level"):
        wire.decode(wire.encode(later))
    none = changed(state, watermarks=np.full_like(state.watermarks, state.clock))
    with pytest.raises(ds.CorruptSketchError, match="more than 30 rows, the capacity"):
        wire.decode(wire.encode(none))
    many = sketch_of(20_000, None).state()  # so many that building it again compacts
    small = changed(many, params=OF.with_capacity(1))
    with pytest.raises(ds.CorruptSketchError, match=r"more than 1 rows, the capacity|allows"):
        wire.decode(wire.encode(small))


def test_watermarks_that_nobody_can_have_seen() -> None:
    """Otherwise a few bytes would silence a stream for ever."""
    empty = ds.IntegralDecaySketch(OF, DECAY).state()
    marks = np.full(OF.levels + 1, NO_CLOCK)
    for levels in (1, 5, OF.levels):
        far = marks.copy()
        far[:levels] = 1 << 61
        with pytest.raises(ds.CorruptSketchError, match="claims that 31 observations or more"):
            wire.decode(wire.encode(changed(empty, watermarks=far)))
    everywhere = np.full(OF.levels + 1, 1 << 61)
    with pytest.raises(ds.CorruptSketchError, match=f"level {OF.levels} has watermark"):
        wire.decode(wire.encode(changed(empty, watermarks=everywhere)))
    state = wire.decode(wire.encode(changed(empty, watermarks=far)), check_plausible=False)
    assert state.watermarks[0] == 1 << 61


def test_honest_watermarks_are_believed() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows, span = int(rng.integers(1, 3000)), int(rng.choice([1, 10, 500]))
        of = ds.SketchParams(
            max_weight=20, id_bits=20, capacity=int(rng.choice([1, 5, 50])), seed=seed
        )
        for decay in (DECAY, integral.window(50), integral.halving(30)):
            sketch = ds.IntegralDecaySketch(of, decay)
            ids = rng.choice(1 << 20, rows, replace=False)
            sketch.update(None, rng.integers(1, 21, rows), rng.integers(0, span, rows), ids)
            assert ds.IntegralDecaySketch.from_bytes(sketch.to_bytes()) == sketch


def body_with(decay: bytes, *, told: bytes = b"\0") -> bytes:
    """An empty sketch that names a decay in its own way."""
    empty = ds.IntegralDecaySketch(OF, DECAY)
    blob = empty.to_bytes()[:-4]
    spec = wire.peek(empty.to_bytes()).decay
    head, _, _ = blob.partition(bytes([len(spec)]) + spec)
    length = len(decay)
    varint = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return sealed(head + varint + decay + told + b"\0\0")


@for_each(
    "decay, message",
    [
        (b"{", "expected JSON"),
        (b"[" * 3000, "expected JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"kind":"best"}', "kind is 'best'"),
        (b'{"kind":"window"}', "width of decay 'window' is missing"),
        (b'{"kind":"window","width":-1}', "width is -1"),
        (b'{"kind":"window","width":60}', "the bytes say"),
        (b'{"kind": "exponential","rate":0.02}', "expected it as"),
        (b'{"kind":"exponential","rate":1e-19}', "age"),
        (b'{"kind":"exponential","rate":NaN}', "rate"),
        (b'{"exponent":1e-09,"kind":"polynomial","scale":1}', "age"),
        (b"", "length of the decay is 0, yet parameters are carried"),
    ],
)
def test_decays_that_are_none(decay: bytes, message: str) -> None:
    with pytest.raises(ds.CorruptSketchError, match=message):
        wire.decode(body_with(decay))


@pytest.mark.parametrize(
    "decay",
    [
        b'{"kind":"expression","max_weight":null,"text":"floor(w*exp(-x/60))"}',
        b'{"kind":"expression","text":[]}',
        b'{"half_life":29000.5,"kind":"exponential"}',
    ],
)
def test_a_decay_that_takes_long_to_compute_has_to_be_given(decay: bytes) -> None:
    """What only the bytes ask for is not computed: a text, or more than 2^16 steps."""
    wide = ds.SketchParams(max_weight=1 << 31, id_bits=16, capacity=30, seed=7)
    empty = ds.IntegralDecaySketch(wide, integral.window(60))
    spec = wire.peek(empty.to_bytes()).decay
    head = empty.to_bytes()[:-4].partition(bytes([len(spec)]) + spec)[0]
    blob = sealed(head + bytes([len(decay)]) + decay + b"\0\0\0" + bytes(16))
    with pytest.raises(ds.IncompatibleSketchError, match="decay"):
        wire.decode(blob)


def test_a_long_decay_is_read_by_those_who_know_it() -> None:
    of = ds.SketchParams(max_weight=1 << 20, id_bits=16, capacity=30, seed=7)
    decay = integral.polynomial(1, scale=1)
    with pytest.raises(ds.ParameterError, match="expected at most"):
        ds.IntegralDecaySketch(of, decay)
    text = integral.expression("floor(w*exp(-x/7))")
    sketch = ds.IntegralDecaySketch(OF, text)
    sketch.update([1, 2], [3, 20], [5, 6], [1, 2], now=6)
    with pytest.raises(ds.IncompatibleSketchError, match="decay"):
        ds.IntegralDecaySketch.from_bytes(sketch.to_bytes())
    again = ds.IntegralDecaySketch.from_bytes(sketch.to_bytes(), params=OF, decay=text)
    assert again == sketch


def test_other_faults_of_the_header() -> None:
    spec = wire.peek(sketch_of().to_bytes()).decay
    with pytest.raises(ds.CorruptSketchError, match="whether there is a clock is 2"):
        wire.decode(body_with(spec, told=b"\2"))
    with pytest.raises(ds.CorruptSketchError, match="family 1; expected 2"):
        wire.decode(ds.DecaySketch(OF).to_bytes())
    with pytest.raises(ds.CorruptSketchError, match="family 2; expected 1"):
        ds.wire.decode(sketch_of().to_bytes())
    with pytest.raises(ds.CorruptSketchError, match="length of the decay is 9000"):
        wire.decode(body_with(b" " * 9000))


def test_bytes_of_another_stream() -> None:
    blob = sketch_of().to_bytes()
    with pytest.raises(ds.IncompatibleSketchError, match=r"decay: .*window"):
        wire.decode(blob, decay=integral.window(60))
    short = sketch_of().to_bytes(embed_params=False)
    with pytest.raises(ds.IncompatibleSketchError, match="decay: 'digest"):
        wire.decode(short, params=OF, decay=integral.window(60))
    with pytest.raises(ds.IncompatibleSketchError, match="params: 'not given'"):
        wire.decode(short, decay=DECAY)
    with pytest.raises(ds.IncompatibleSketchError, match="max_weight"):
        wire.decode(blob, params=ds.SketchParams(max_weight=21, id_bits=16, value_type="int64"))
