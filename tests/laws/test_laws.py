"""Laws of every family: the state is a function of the set of copies and of the clock.

Each law is run for each family of `EXAMPLES` and stated on bytes, so that nothing of a state can
hide from it. Parameters are drawn as wildly as a family takes them: several hash functions, secret
keys, a capacity of 1. What only one family can be asked is tested with that family.
"""

from __future__ import annotations

import copy
import pickle
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from support.examples import BATCHES, SHUFFLES, Case, answers, law, states_of

import decaysketch as ds
from decaysketch import families
from decaysketch.families import FAMILIES, Recipe, recipe_from_dict
from quality.examples import (
    EXAMPLES,
    Example,
    Row,
    columns,
    feed,
    forms,
    stream,
    variants,
    with_fields,
)

LEAST = -(1 << 62)  # that a clock may show
DECAYS = (
    ds.decay.window(3), ds.decay.window(100), ds.decay.none(),
    ds.decay.exponential(half_life=50), ds.decay.piecewise([(0, 1.0), (3, 0.5)]),
)  # fmt: skip


@law
def test_any_order_duplication_and_batching_gives_the_same_bytes(case: Case, data: Any) -> None:
    """The clock may be told at any moment, and an earlier time has no effect."""
    batches, rng = data.draw(BATCHES), data.draw(SHUFFLES)
    told = [earlier for now in case.told for earlier in (now, max(now - 50, LEAST))]
    rng.shuffle(told)
    found = case.fed(case.again(rng), batches, told)
    assert found.to_bytes() == case.fed().to_bytes()


@law
def test_any_partition_and_merge_tree_gives_the_same_bytes(case: Case, data: Any) -> None:
    """Copies in several parts, parts that know the clock and parts that do not; and one late row
    in a part of its own."""
    count, batches, rng = data.draw(st.integers(1, 6)), data.draw(BATCHES), data.draw(SHUFFLES)
    pieces: list[list[Row]] = [[] for _ in range(count)]
    clocks: list[list[int]] = [[] for _ in range(count)]
    if case.sited:  # all rows of a source in one part, or the same in several
        for source in sorted({row.name[0] for row in case.rows}):
            for piece in {rng.randrange(count) for _ in range(rng.choice([1, 1, 2]))}:
                pieces[piece] += [row for row in case.rows if row.name[0] == source]
    for row in [] if case.sited else case.rows:
        for _ in range(rng.choice([1, 1, 2]) if case.example.counts_once else 1):
            rng.choice(pieces).append(row)
    for now in case.told:
        rng.choice(clocks).append(max(now - 20, LEAST))
        rng.choice(clocks).append(now)
    parts = [case.fed(*part) for part in zip(pieces, [batches] * count, clocks, strict=True)]
    while len(parts) > 1:
        rng.shuffle(parts)
        if rng.random() < 0.5:
            together = parts[: rng.randint(2, len(parts))]
            parts = [*parts[len(together) :], ds.merge(together)]
        else:
            other = parts.pop()
            parts[0].merge(other)
    assert parts[0].to_bytes() == case.fed().to_bytes()


@law
def test_merge_is_commutative_associative_idempotent_and_leaves_its_argument(
    case: Case, data: Any
) -> None:
    a, b = case.fed(), case.fed(case.apart(data.draw(case.more()), 1), told=[])
    c = case.fed(case.apart(data.draw(case.more()), 2), told=[7] * case.example.clock)
    before = [sketch.to_bytes() for sketch in (a, b, c)]
    assert (a | b).to_bytes() == (b | a).to_bytes()
    assert ((a | b) | c).to_bytes() == (a | (b | c)).to_bytes() == ds.merge([c, a, b]).to_bytes()
    assert (a | case.recipe.empty()).to_bytes() == before[0]
    assert ds.merge(iter([a])).to_bytes() == before[0]
    merged = a.copy()
    merged.merge(b)
    assert merged.to_bytes() == (a | b).to_bytes()
    if case.example.idempotent:
        assert (a | a).to_bytes() == before[0]
        merged.merge(merged)
        assert merged.to_bytes() == (a | b).to_bytes()
    assert [sketch.to_bytes() for sketch in (a, b, c)] == before


@law
def test_a_sketch_that_is_asked_in_between_goes_on_as_if_it_was_not(case: Case, data: Any) -> None:
    batches, rng = data.draw(BATCHES), data.draw(SHUFFLES)
    # Copies that disagree, far from one another and next to one another.
    repeated = 2 if case.example.counts_once else 1
    mixed = [row for _ in range(repeated) for row in rng.sample(case.rows, len(case.rows))]
    rows = [
        row._replace(value=rng.choice(case.rows).value) for row in mixed for _ in range(repeated)
    ]
    at, told = len(rows) // 2, case.told
    if case.sited:  # what comes after a reading is no earlier than what was read, the clock as well
        rows.sort(key=lambda row: row.time)
        told = []
    asked = case.fed(rows[:at], told=told)
    while at < len(rows):
        asked.state()  # what is there now stands in order, and what comes is merged into it
        piece = rows[at : at + rng.choice(batches)]
        at += len(piece)
        if case.sited or rng.random() < 0.5:
            case.feed(asked, piece)
        else:
            asked.merge(case.fed(piece, told=[]))
        if rng.random() < 0.1:
            with room(case):
                asked.resize(rng.randint(1, asked.params.capacity))
    case.feed(asked, [], told=case.told)
    assert asked.to_bytes() == case.fed(rows, capacity=asked.params.capacity).to_bytes()


@law
def test_shrinking_equals_building_small(case: Case, data: Any) -> None:
    capacity = data.draw(st.integers(1, case.params.capacity))
    shrunk = case.fed()
    try:
        small = case.fed(capacity=capacity)
    except ds.errors.CapacityError:
        assert case.recipe.kind.promises.conflicts
        before = shrunk.to_bytes()
        with pytest.raises(ds.errors.CapacityError):
            shrunk.resize(capacity)
        assert shrunk.to_bytes() == before
        return
    shrunk.resize(capacity)
    assert shrunk.to_bytes() == small.to_bytes()
    if case.sited:  # parts of a source are not merged
        return
    half = len(case.rows) // 2
    joined = case.fed(case.rows[:half]) | case.fed(case.rows[half:], told=[], capacity=capacity)
    assert joined.to_bytes() == small.to_bytes()


def room(case: Case) -> AbstractContextManager[None]:
    """Where a family may have no room for what is held, it may say so."""
    return suppress(*[ds.errors.CapacityError] * case.recipe.kind.promises.conflicts)


def twins(case: Case, sketch: Any) -> list[Any]:
    """The sketch read from its bytes, copied and pickled, in every way that there is."""
    found = [case.recipe.decode(sketch.to_bytes()), sketch.copy(), ds.merge([sketch])]
    found += [pickle.loads(pickle.dumps(sketch)), copy.copy(sketch), copy.deepcopy(sketch)]
    whole = states_of(sketch) if hasattr(sketch, "states") else sketch.state()
    found.append(type(sketch).from_state(whole))
    found += [case.recipe.decode(short) for short in forms(sketch)[1:]]
    return found


@law
def test_encode_decode_encode_is_identical(case: Case, data: Any) -> None:
    sketch = case.fed()
    blob = sketch.to_bytes()
    for twin in twins(case, sketch):
        assert twin.to_bytes() == blob
        assert twin == sketch
        assert twin.digest() == sketch.digest()
        assert twin.params == sketch.params
        assert type(twin) is type(sketch)
        assert getattr(twin, "clock", None) == getattr(sketch, "clock", None)
    head = families.peek(blob)
    assert (head.family, head.total) == (case.recipe.family, len(sketch))
    assert head.capacity == sketch.params.capacity
    for form in forms(sketch):
        assert forms(case.recipe.decode(form)) == forms(sketch)


@law
def test_a_twin_goes_on_like_the_original(case: Case, data: Any) -> None:
    sketch = case.fed()
    told = [3] * case.example.clock
    more = case.after(case.rows, data.draw(case.more()))
    expected = case.fed(case.rows + more, told=[*case.told, *told]).to_bytes()
    for each in (*twins(case, sketch), sketch):
        assert case.feed(each, more, told=told).to_bytes() == expected


@law
def test_queries_leave_the_sketch_untouched_and_repeat_exactly(case: Case, data: Any) -> None:
    latest = max([*case.told, 0])
    now = data.draw(st.integers(-310, 310) | st.integers(latest, 1 << 62))
    decays = [None] if case.recipe.decay is not None else [data.draw(st.sampled_from(DECAYS))]
    sketch = case.fed()
    blob = sketch.to_bytes()
    first = answers(sketch, now, decays)
    assert len(first) >= 2
    for each in (sketch, case.recipe.decode(blob)):
        assert answers(each, now, decays) == first
    assert repr(sketch) == repr(sketch.copy())
    assert sketch.stats().rows == len(sketch)
    assert sketch.to_bytes() == blob


@law
def test_what_was_read_stays_while_the_sketch_goes_on(case: Case, data: Any) -> None:
    sketch = case.fed()
    states = states_of(sketch)
    digests = [state.digest() for state in states]
    snapshot = sketch.snapshot() if hasattr(sketch, "snapshot") else sketch.copy()
    blob = snapshot.to_bytes()
    case.feed(sketch, data.draw(case.more()))
    other = case.apart(data.draw(case.more()), 1)
    sketch.merge(case.fed(other, told=[(1 << 62) - 1] * case.example.clock))
    with room(case):
        sketch.resize(1)
    assert len(sketch) >= 0
    assert [state.digest() for state in states] == digests
    assert snapshot.to_bytes() == blob


# ------------------------------------------------------------------ of the example and its variants

VARIANTS = [
    pytest.param(example, recipe, id="-".join(filter(None, (family, name))))
    for family, example in EXAMPLES.items()
    for name, recipe in variants(example).items()
]
of_every_variant = pytest.mark.parametrize(("example", "recipe"), VARIANTS)


def fed(example: Example, recipe: Recipe, first: int = 0, last: int = 60) -> Any:
    rows = stream(example, recipe, last)[first:]
    return feed(recipe.empty(), example, recipe, rows, told=[150] * example.clock)


def test_every_family_has_an_example() -> None:
    assert list(EXAMPLES) == list(FAMILIES)
    assert all(example.recipe.family == family for family, example in EXAMPLES.items())
    assert len({recipe.number for recipe in FAMILIES.values()}) == len(FAMILIES)


@of_every_variant
class TestEveryVariant:
    def test_single_observations_are_a_batch(self, example: Example, recipe: Recipe) -> None:
        rows = stream(example, recipe, 1_300)  # more than are gathered before they are taken in
        one_by_one = feed(recipe.empty(), example, recipe, rows, [1])
        assert one_by_one == feed(recipe.empty(), example, recipe, rows)
        assert one_by_one.stats().fed == 1_300

    def test_it_is_what_its_json_and_its_pickle_say(self, example: Example, recipe: Recipe) -> None:
        key = getattr(recipe.params, "id_key", None)
        assert recipe_from_dict(recipe.to_dict(), id_key=key) == recipe
        assert pickle.loads(pickle.dumps(recipe)) == recipe
        assert type(recipe.empty()) is recipe.sketch_type

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_kind_of_bytes_is_read(self, example: Example, recipe: Recipe, kind: Any) -> None:
        sketch = fed(example, recipe)
        blob = kind(sketch.to_bytes())
        assert families.family_of(blob) == recipe.family
        assert recipe.decode(blob) == families.decode(blob, params=recipe.params) == sketch
        held = recipe.decode_snapshot(blob)
        assert (held.digest, held.to_bytes()) == (sketch.digest(), sketch.to_bytes())
        assert held.thaw() == sketch

    def test_a_refused_batch_or_time_changes_nothing(
        self, example: Example, recipe: Recipe
    ) -> None:
        sketch = fed(example, recipe)
        before, rows = sketch.to_bytes(), stream(example, recipe, 9, seed=1)
        bad: list[dict[str, Any]] = [{"time": (1 << 62) + 1}, {"time": -(1 << 62) - 1}]
        if example.named_by == "id":
            bad += [{"name": -1}, {"name": 1 << recipe.params.id_bits}]
        if example.weight is not None:
            bad += [{"weight": -1}, {"weight": getattr(recipe.params, example.weight) + 1}]
        if example.weighted:
            bad += [{"weight": -1}, {"weight": 1 << 62}]
        if example.value is not None and recipe.params.value_type == "float64":
            bad += [{"value": float("nan")}, {"value": float("inf")}]
        for fault in bad:
            for batch in ([*rows, rows[0]._replace(**fault)], [rows[0]._replace(**fault)]):
                with pytest.raises(ds.ObservationError):
                    feed(sketch, example, recipe, batch)
                assert sketch.to_bytes() == before, fault
        given, named = columns(example, recipe, rows)
        with pytest.raises(ds.ObservationError):
            sketch.update(*given[:-1], given[-1][:5], **named)
        if example.clock:
            for now in (1.5, True, (1 << 62) + 1):
                with pytest.raises(ds.ParameterError, match="now is"):
                    sketch.advance(now)
        assert sketch.to_bytes() == before

    def test_the_smallest_capacity_wins(self, example: Example, recipe: Recipe) -> None:
        small = with_fields(recipe, capacity=1)
        assert small is not None
        assert ds.merge([fed(example, recipe), fed(example, small)]) == fed(example, small)
        assert recipe.differences(small) == {}

    def test_a_sketch_can_only_shrink(self, example: Example, recipe: Recipe) -> None:
        sketch = fed(example, recipe)
        before = sketch.to_bytes()
        for capacity in (recipe.params.capacity + 1, 0, 1.5):
            with pytest.raises(ds.ParameterError, match="capacity is"):
                sketch.resize(capacity)
        assert sketch.to_bytes() == before

    def test_other_parameters_are_named_and_nothing_changes(
        self, example: Example, recipe: Recipe
    ) -> None:
        other = with_fields(recipe, seed=recipe.params.seed + 1)
        assert other is not None
        seeds = (recipe.params.seed, other.params.seed)
        one, two = fed(example, recipe), fed(example, other)
        before = one.to_bytes()
        assert recipe.differences(other) == {"seed": seeds}
        assert one != two
        for attempt in (
            lambda: one.merge(two),
            lambda: one | two,
            lambda: ds.merge([one, two]),
            lambda: recipe.decode(two.to_bytes()),
            lambda: recipe.decode_snapshot(two.to_bytes()),
            lambda: families.decode(two.to_bytes(), params=recipe.params),
        ):
            with pytest.raises(ds.IncompatibleSketchError, match=f"seed: {seeds[0]} != {seeds[1]}"):
                attempt()
        assert one.to_bytes() == before

    def test_other_families_are_named_and_nothing_changes(
        self, example: Example, recipe: Recipe
    ) -> None:
        sketch = fed(example, recipe)
        before = sketch.to_bytes()
        for theirs in EXAMPLES.values():
            if (family := theirs.recipe.family) == recipe.family:
                continue
            other = fed(theirs, theirs.recipe)
            differ = {"family": (recipe.family, family)}
            assert recipe.differences(theirs.recipe) == differ
            with pytest.raises(ds.IncompatibleSketchError) as caught:
                recipe.decode(other.to_bytes())
            assert caught.value.fields == differ
            with pytest.raises(ds.IncompatibleSketchError) as caught:
                recipe.decode_snapshot(other.to_bytes())
            assert caught.value.fields == differ
            with pytest.raises(ds.IncompatibleSketchError) as caught:
                ds.merge([sketch, other])
            assert caught.value.fields == differ
            for each in (other, other.snapshot()):
                with pytest.raises(TypeError, match=f"cannot merge a {type(each).__name__} into a"):
                    sketch.merge(each)
            assert sketch != other
        for thing in (3, None, "text", other, other.snapshot()):
            assert sketch != thing
            with pytest.raises(TypeError, match="unsupported operand"):
                _ = sketch | thing
            with pytest.raises(TypeError, match=f"cannot merge a {type(thing).__name__} into a"):
                sketch.merge(thing)
        assert sketch.to_bytes() == before

    def test_a_sketch_is_mutable_and_shows_its_class(
        self, example: Example, recipe: Recipe
    ) -> None:
        sketch = fed(example, recipe)
        with pytest.raises(TypeError, match="unhashable"):
            hash(sketch)
        assert repr(sketch).startswith(f"{type(sketch).__name__}(")
        key = getattr(recipe.params, "id_key", None)
        for said in (repr(sketch), str(recipe), sketch._repr_html_(), str(recipe.to_dict())):
            assert key is None or (key.hex() not in said and str(key) not in said)

    def test_the_clock_is_part_of_the_state(self, example: Example, recipe: Recipe) -> None:
        if not example.clock:
            with pytest.raises(ds.ParameterError, match="now is 5; expected None"):
                recipe.empty(5)
            return
        a, b = recipe.empty(), recipe.empty(5)
        assert (a.clock, b.clock) == (None, 5)
        assert a != b
        a.advance(3)
        a.advance(5)
        a.advance(4)  # never goes back
        assert a == b
        assert (recipe.empty() | a).clock == (a | recipe.empty(2)).clock == 5
