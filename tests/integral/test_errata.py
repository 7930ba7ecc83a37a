"""Section 3 of the paper as printed, each slip beside an example that shows it.

The printed procedures act on plain sets, one level at a time, as the paper writes them. Every test
shows that the printed form fails and that the sketch does not.
"""

from __future__ import annotations

from itertools import permutations

import decaysketch as ds
from decaysketch.decay import integral

# One level with expiry times alone: level 0 of weight-1 observations under a window of 10, so that
# an observation of time t expires at t + 11. An observation is (time, id).
WINDOW = 10
OF = ds.SketchParams(max_weight=1, id_bits=10, capacity=2, value_type="int64")
Element = tuple[int, int]


class Printed:
    """Algorithms 1 to 3 at level 0, as printed."""

    def __init__(self, capacity: int = OF.capacity) -> None:
        self.capacity = capacity
        self.sample: set[Element] = set()
        self.mark = -1

    @staticmethod
    def expiry(element: Element) -> int:
        return element[0] + WINDOW + 1

    def process(self, element: Element, clock: int) -> None:
        """Algorithm 2: line 3 compares with the clock at arrival, which is recorded nowhere."""
        if element not in self.sample and self.expiry(element) > max(clock, self.mark):
            self.sample.add(element)
            if len(self.sample) > self.capacity:
                self._truncate()

    def merge(self, other: Printed) -> None:
        """Algorithm 3."""
        self.sample |= other.sample
        self.mark = max(self.mark, other.mark)
        while len(self.sample) > self.capacity:
            self._truncate()

    def _truncate(self) -> None:
        self.mark = min(map(self.expiry, self.sample))
        self.sample = {e for e in self.sample if self.expiry(e) != self.mark}


def sketch_of(elements: list[Element]) -> ds.IntegralDecaySketch:
    sketch = ds.IntegralDecaySketch(OF, integral.window(WINDOW))
    for time, id_ in elements:
        sketch.update(None, 1, time, id_)
    return sketch


def test_algorithm_3_lowers_a_watermark_and_then_answers_with_a_gap() -> None:
    """Merging keeps what expires before the joined watermark; truncating then lowers it."""
    ours = [(100, 1), (101, 2), (102, 3)]  # discards 1: t_0 = 111
    theirs = [(10, 4), (11, 5)]  # discards nothing
    printed, other = Printed(), Printed()
    for element in ours:
        printed.process(element, -1)
    for element in theirs:
        other.process(element, -1)
    assert printed.mark == 111
    printed.merge(other)
    assert printed.mark == 22  # lower: a query at 105 now seems answerable
    assert len(printed.sample) == 2  # but (100, 1), which still counts at 105, is missing
    merged = sketch_of(ours) | sketch_of(theirs)
    assert merged.state().watermarks[0] == 111
    assert merged == sketch_of(ours + theirs)


def test_algorithm_2_makes_the_state_depend_on_the_order_of_arrival() -> None:
    """Lemma 3.2 overlooks the clock: (0, 1) counts toward the capacity or not, by when it comes."""
    elements = [(0, 1), (20, 2), (21, 3)]
    capacity = 2
    states = set()
    for order in permutations(elements):
        printed = Printed(capacity)
        for clock, element in zip((5, 15, 25), order, strict=True):
            printed.process(element, clock)
        states.add((frozenset(printed.sample), printed.mark))
    assert len(states) > 1
    digests = set()
    for order in permutations(elements):
        sketch = ds.IntegralDecaySketch(OF, integral.window(WINDOW))
        for clock, (time, id_) in zip((5, 15, 25), order, strict=True):
            sketch.update(None, 1, time, id_, now=clock)
        digests.add(sketch.digest())
    assert len(digests) == 1


def test_the_query_level_may_have_its_watermark_at_the_query() -> None:
    """Theorem 3.27 asks for t_l < c; what expires AT c has expired, as algorithm 6 has it."""
    elements = [(0, 1), (1, 2), (2, 3)]
    sketch = sketch_of(elements)
    mark = int(sketch.state().watermarks[0])
    assert mark == 11
    at_mark = sketch.sum(now=mark)
    assert at_mark.exact
    assert at_mark.value == 2 == sum(time + WINDOW >= mark for time, _ in elements)
    marks = sketch.state().watermarks
    theorem = min(i for i in range(OF.levels + 1) if marks[i] < mark)
    assert theorem > 0  # it would have estimated from a coarser level
    before = sketch.sample(now=mark - 1)
    assert before.levels.min(initial=1) > 0 or before.step > 0  # level 0 has a gap there


def test_an_observation_that_a_level_never_selects_is_not_stored_there() -> None:
    """Line 3 of algorithm 2 holds for an expiry of t where t > c, in levels that select nothing.

    Definition 3.1 gives an observation of no selected integer (Delta = -1) the expiry t. While t is
    still to come, t > max(c, t_i): algorithm 2 as printed inserts it at every level, where it takes
    the places of observations that count.
    """
    of = ds.SketchParams(max_weight=1, id_bits=20, capacity=5, seed=2, value_type="int64")
    ids = list(range(200))
    top = {id_: int(level) for id_, level in zip(ids, levels_of(of, ids), strict=True)}
    level = 4
    selected = [id_ for id_ in ids if top[id_] >= level]
    assert of.capacity < len(selected) < 30
    # Selected observations are of time 0; those that the level does not select lie in the future.
    times = {id_: 0 if id_ in selected else 1000 for id_ in ids}
    printed = Printed(of.capacity)
    printed.expiry = lambda e: e[0] + (WINDOW + 1 if e[1] in selected else 0)  # type: ignore[method-assign]
    for id_ in ids:
        printed.process((times[id_], id_), 0)
    assert printed.mark == 1000  # all but everything else
    sketch = ds.IntegralDecaySketch(of, integral.window(WINDOW))
    sketch.update(None, 1, [times[id_] for id_ in ids], ids, now=0)
    assert sketch.state().watermarks[level] == WINDOW + 1


def levels_of(of: ds.SketchParams, ids: list[int]) -> list[int]:
    return ds.minhit.top_levels(of, ids, [1] * len(ids)).tolist()
