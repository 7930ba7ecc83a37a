"""What a wheel must do wherever it is installed; needs nothing but the library.

Every family builds, merges, encodes, reads and answers; copies of rows change nothing.
"""

import numpy as np

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler

params = ds.SketchParams(max_weight=9, id_bits=40, capacity=500, seed=7, time_unit="s")
fixed = ds.decay.integral.exponential(half_life=900)
rows = np.arange(20_000)
halves = (rows < 12_000, rows >= 8_000)  # which overlap


def filled(empty, **source):
    """A sketch of each half, and one of all rows."""
    found = []
    for chosen in (*halves, rows >= 0):
        sketch, some = empty(), rows[chosen]
        columns = [] if isinstance(sketch, SumSampler) else [some / 8]
        if not isinstance(sketch, MedianSampler):
            columns.append(1 + some % 9)
        sketch.update(*columns, some // 7, some, **source)
        found.append(sketch)
    return found


for empty, source in (
    (lambda: ds.DecaySketch(params), {}),
    (lambda: ds.IntegralDecaySketch(params, fixed), {}),
    (lambda: SumSampler(SumParams(max_sum=1 << 40, capacity=500)), {"source": "a"}),
    (lambda: MedianSampler(MedianParams(max_count=1 << 40, capacity=500)), {"source": "a"}),
):
    one, two, whole = filled(empty, **source)
    if not source:
        assert (one | two).to_bytes() == (two | one | two).to_bytes() == whole.to_bytes()
    assert ds.decode(whole.to_bytes()).to_bytes() == whole.to_bytes()

one, two, whole = filled(lambda: ds.DecaySketch(params))
for text in ("window(1h)", "exponential(half_life=10min)", "1/(1+log(1+x/60))"):
    decay = ds.decay.parse(text, "s")
    truth = np.sum((1 + rows % 9) * decay(2900 - rows // 7))
    answer = whole.sum(decay, now=2900)
    assert answer.lower <= answer.value <= answer.upper
    assert abs(answer.value - truth) < 0.5 * truth, (text, answer, truth)
    assert abs(whole.mean(decay, now=2900).value - np.mean(rows / 8)) < 1500
print("decaysketch", ds.__version__, "works")
