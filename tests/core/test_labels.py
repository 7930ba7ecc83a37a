"""Labels: what codes are, and that a dictionary is a function of the rows that are held."""

from __future__ import annotations

import hashlib
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.core import labels
from decaysketch.core.labels import EncodedLabels, LabelBook, code_of

PARAMS = ds.SketchParams(id_bits=40, capacity=60, seed=1, value_type="label")
SECRET = bytes(range(16))


def stream(rows: int = 1_500, seed: int = 0) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng(seed)
    numbers = draw.zipf(1.3, rows).tolist()
    texts = np.array([f"E{n}" if n < 400 else None for n in numbers], object)
    return texts, draw.integers(0, 500, rows), np.arange(rows)


def built(order: Any, cuts: int = 1, params: Any = PARAMS, draw: Any = None) -> ds.DecaySketch:
    texts, times, ids = stream()
    parts = [ds.DecaySketch(params) for _ in range(cuts)]
    for part, rows in zip(parts, np.array_split(order, cuts), strict=True):
        part.update(texts[rows], 1, times[rows], ids[rows])
    while len(parts) > 1:
        draw.shuffle(parts)
        parts = [parts[0] | parts[1], *parts[2:]]
    return parts[0]


def test_the_code_of_a_label_follows_from_its_text_and_the_secret_alone() -> None:
    digest = hashlib.blake2b("é42".encode(), digest_size=8, person=b"dsk-label").digest()
    assert code_of("é42") == int.from_bytes(digest, "big") >> 1 < 1 << 63
    assert code_of("é42") == 2695664492266380929
    assert code_of("é42", SECRET) != code_of("é42")


@pytest.mark.parametrize("params", [PARAMS, ds.SketchParams(
    capacity=40, copies=3, id_key=SECRET, value_type="label"
)])  # fmt: skip
def test_any_order_copies_and_merge_tree_give_the_same_bytes(params: Any) -> None:
    draw = np.random.default_rng(60)
    expected = built(np.arange(1_500), params=params).to_bytes()
    for _ in range(60 if params is PARAMS else 10):
        order = np.concatenate([draw.permutation(1_500), draw.integers(0, 1_500, 300)])
        draw.shuffle(order)
        found = built(order, int(draw.integers(1, 9)), params, draw)
        assert found.to_bytes() == expected
    again = ds.decode(expected, id_key=params.id_key)
    assert again.to_bytes() == expected == pickle.loads(pickle.dumps(again)).to_bytes()


def test_labels_of_rows_that_were_let_go_are_forgotten() -> None:
    sketch = ds.DecaySketch(PARAMS)
    for time in range(12):
        sketch.update([f"{time}-{n}" for n in range(1_000)], 1, [time] * 1_000,
                      np.arange(1_000) + 1_000 * time)  # fmt: skip
    held = sketch.snapshot().labels
    assert held is not None
    assert sketch._labels is not None
    assert 0 < len(held) <= len(sketch) < 1_000
    assert len(sketch._labels) < 4_000  # of 12,000 that came
    before = sketch.nbytes
    sketch.trim()
    assert len(sketch._labels) == len(held)
    assert sketch.nbytes < before - 200 * 100
    assert set(held.texts) == {group.value for group in sketch.group_by(ds.decay.none())}


def test_one_by_one_a_column_and_a_dictionary_say_the_same() -> None:
    texts, times, ids = stream(300)
    sketches = [ds.DecaySketch(PARAMS) for _ in range(4)]
    for row in range(300):
        sketches[0].update(texts[row], 1, int(times[row]), int(ids[row]))
    sketches[1].update(list(texts), 1, times, ids)
    gaps = np.array([text is None for text in texts])
    filled = np.where(gaps, "none", texts).astype(str)
    sketches[2].update(np.ma.MaskedArray(filled, mask=gaps), 1, times, ids)
    entries = sorted({*filled.tolist(), "never used"})
    numbers = np.array([-1 if gap else entries.index(text)
                        for text, gap in zip(filled.tolist(), gaps, strict=True)])  # fmt: skip
    sketches[3].update(EncodedLabels(entries, numbers), 1, times, ids)
    assert len({sketch.to_bytes() for sketch in sketches}) == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (3, r"values\[0\] is 3; expected a text"),
        (["a", 3.5], r"values\[1\] is 3.5; expected a text"),
        (["a", ["b"]], r"values\[1\] is \['b'\]; expected a text"),
        ([b"a", "b"], r"values\[0\] is b'a'; expected a text"),
        (["a", "é" * 513], r"values\[1\] has 1026 bytes; a label has at most 1024"),
        ("\ud800", "not valid Unicode"),
    ],
)
def test_what_is_no_label_is_refused_with_its_row(value: Any, reason: str) -> None:
    sketch = ds.DecaySketch(PARAMS)
    rows = len(value) if isinstance(value, list) else 1
    before = sketch.to_bytes()
    with pytest.raises(ds.ObservationError, match=reason):
        sketch.update(value, 1, [1] * rows, list(range(rows)))
    with pytest.raises(ds.ObservationError, match=reason):
        sketch.verdicts(value, [1] * rows, [1] * rows, list(range(rows)))
    assert sketch.to_bytes() == before


def test_a_text_is_no_number_and_the_other_way_round() -> None:
    with pytest.raises(ds.ObservationError, match="expected float64 or exact integers"):
        ds.DecaySketch(ds.SketchParams()).update(["E42"], 1, [1], [1])


def test_labels_of_one_code_are_one_by_the_smaller_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "_code", lambda text, key: len(text))
    one, other = ds.DecaySketch(PARAMS), ds.DecaySketch(PARAMS)
    one.update(["b", "cc", "a"], 1, [1, 2, 3], [1, 2, 3])
    other.update(["c"], 1, [4], [4])
    assert one.stats().label_collisions == 1
    merged, swapped = one | other, other | one
    assert merged.to_bytes() == swapped.to_bytes()
    assert [group.value for group in merged.group_by("none")] == ["a", "cc"]
    one.merge(other)
    assert one.stats().label_collisions == 2


def test_there_are_so_many_labels_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_LABELS", 50)
    sketch, other = ds.DecaySketch(PARAMS), ds.DecaySketch(PARAMS)
    sketch.update([f"E{n}" for n in range(40)], 1, [1] * 40, list(range(40)))
    before = sketch.to_bytes()
    with pytest.raises(ds.ObservationError, match="11 new labels, and the sketch has 40"):
        sketch.update([f"F{n}" for n in range(11)], 1, [1] * 11, list(range(11)))
    other.update([f"F{n}" for n in range(11)], 1, [1] * 11, list(range(11)))
    with pytest.raises(ds.ParameterError, match="a merge has 51 labels"):
        sketch.merge(other)
    assert sketch.to_bytes() == before


class TestAnswers:
    sketch = built(np.arange(1_500))
    exact = ds.DecaySketch(ds.SketchParams(value_type="label"))
    exact.update(["E42", "E43", "F1", None, "E42"], 1, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5])

    @pytest.mark.parametrize(
        ("predicate", "share"),
        [
            ("v == 'E42'", 0.5),
            ("'E42' != v", 0.5),
            ('v in ("E42", "F1")', 0.75),
            ("v in ('F1')", 0.25),
            ("v not in ('E42', 'F1')", 0.25),
            ("startswith(v, 'E4')", 0.75),
            ("v == 'it\\'s \\\\ \\\"so\\\"' or v == 'E43' and w >= 1", 0.25),
            (lambda v, w: v == "E43", 0.25),
        ],
    )
    def test_shares(self, predicate: Any, share: float) -> None:
        assert self.exact.selectivity(predicate, "none").value == share

    def test_texts_are_shown_and_never_codes(self) -> None:
        last = self.exact.last("none")
        assert last is not None
        assert last.value == "E42"
        first, *_ = self.exact.heavy_hitters(0, "none")
        assert (first.value, first.frequency.value) == ("E42", 0.5)
        assert {type(each.value) for each in self.sketch.group_by("window(1000)")} == {str}

    def test_shares_of_a_sample_hold_the_truth(self) -> None:
        texts, *_ = stream()
        known = texts[texts != None]  # noqa: E711 - of each entry
        for hitter in self.sketch.heavy_hitters(0.05, "window(1000)"):
            assert (
                hitter.frequency.lower <= np.mean(known == hitter.value) <= (hitter.frequency.upper)
            )

    @pytest.mark.parametrize("estimator", ["stratified", "cohen-strauss"])
    def test_the_median_of_copies_is_by_label(self, estimator: str) -> None:
        params = ds.SketchParams(capacity=60, copies=3, value_type="label")
        found = built(np.arange(1_500), params=params)
        for combine in ("average", "median"):
            groups = found.group_by("window(1000)", combine=combine, estimator=estimator)  # type: ignore[arg-type]
            assert groups[0].value == "E1"

    @pytest.mark.parametrize(
        ("question", "arguments"),
        [("mean", ()), ("total", ()), ("variance", ()), ("stddev", ()), ("median", ()),
         ("quantile", (0.5,)), ("rank", (1,)), ("cdf", ([1],)), ("histogram", ([1, 2],))],
    )  # fmt: skip
    def test_what_needs_numbers_is_refused_by_name(self, question: str, arguments: Any) -> None:
        with pytest.raises(ds.ParameterError, match=f"{question} needs numbers"):
            getattr(self.exact, question)(*arguments, "none")

    def test_neither_do_bounds_and_comparisons_suit(self) -> None:
        view = self.exact.at(ds.decay.none(), 5)
        with pytest.raises(ds.ParameterError, match="at_least is 3, and these values"):
            view.ask("selectivity", at_least=3)
        moments = {"now": ("none", 5), "then": ("none", 4)}
        with pytest.raises(ds.ParameterError, match="mean needs numbers"):
            self.exact.compare("mean", **moments)
        assert self.exact.compare("count", **moments).value == 1
        for predicate in ("v > 3", "abs(v) > 3", "v == w"):
            with pytest.raises(ds.ParameterError, match="uses v as a number"):
                self.exact.selectivity(predicate, "none")
        numbers = ds.DecaySketch(ds.SketchParams())
        numbers.update([1.0], 1, [1], [1])
        with pytest.raises(ds.ParameterError, match="compares v with 'E42'"):
            numbers.selectivity("v == 'E42'", "none")

    def test_of_an_integral_decay(self) -> None:
        sketch = ds.IntegralDecaySketch(PARAMS, "halving(10min)")
        texts, times, ids = stream()
        sketch.update(texts, 1, times, ids)
        assert sketch.heavy_hitters(0.1)[0].value == "E1"
        assert ds.decode(sketch.to_bytes()).to_bytes() == sketch.to_bytes()
        assert sketch.verdicts(["E1"], [1], [int(times[0])], [10**9]).tolist() == [
            sketch.copy().verdicts(["E1"], [1], [int(times[0])], [10**9])[0]
        ]


@pytest.mark.parametrize("letter", ["a", "é", "€", "\U0001f600"])
def test_memory_is_counted_in_bytes_not_in_characters(letter: str) -> None:
    texts = [f"{number:06}{'x' * 300}{letter}" for number in range(2_000)]
    tracemalloc.start()
    try:
        book = LabelBook()
        codes = book.read([str(text.encode(), "utf-8") for text in texts])
        held, _ = tracemalloc.get_traced_memory()
        labels = book.held([codes])
    finally:
        tracemalloc.stop()
    assert held < book.nbytes + codes.nbytes
    assert book.nbytes == labels.nbytes
    book.keep(labels, 0)
    assert book.nbytes == labels.nbytes
