"""Two families of no use, to see what a new one takes: a class or two, and one line to register it.

``toy`` keeps the newest ``capacity`` distinct observations and nothing else: no levels, no hash. Of
more, all that are not later than the newest that has no place are discarded, ties with it, so that
the state is a function of the set. Every answer is exact, or refused.

``counts`` is the same but for its promise: it says of its merge that it is not idempotent, and
whoever may merge a sketch twice has to refuse it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Self

import numpy as np

from decaysketch.contract.family import (
    Family,
    Head,
    Input,
    Promises,
    Recipe,
    refuse_decay,
    take_fields,
)
from decaysketch.contract.sketch import Sketch, Stats
from decaysketch.contract.snapshot import Fed, OneState, Sampled, Snapshot, marks_of
from decaysketch.core.codec import reading, writing
from decaysketch.core.codec.reading import Rows
from decaysketch.core.codec.sections import check_canonical, check_rows, decode_rows
from decaysketch.core.codec.writing import encode_rows
from decaysketch.core.observations import prepare
from decaysketch.core.params import OPTIONS, SketchParams
from decaysketch.core.row_check import Identified, compare
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import CorruptSketchError, ParameterError
from decaysketch.query.catalog import AskedOfValues, AskedOfWeights, View, questions_of
from decaysketch.query.sample import Aged, Observed, Sample, check_answerable

__all__ = ["COUNTS", "TOY", "ToyParams", "ToyRecipe", "ToySketch"]


@dataclass(frozen=True)
class ToyParams(SketchParams):
    """Parameters of a toy: of one hash function, which it has no use for."""

    number = 77  # on the wire
    family = "toy"

    def __post_init__(self, accuracy: float | str | None, expected: int | None) -> None:
        super().__post_init__(accuracy, expected)
        if self.copies != 1:
            raise ParameterError(f"copies is {self.copies}; expected 1")
        if self.value_type == "label":
            raise ParameterError("value_type is 'label'; a toy keeps no texts")

    @classmethod
    def like(cls, params: SketchParams) -> Self:
        """The same fields."""
        return cls(**{each.name: getattr(params, each.name) for each in fields(params)})


@dataclass(frozen=True, eq=False)
class State:
    """Rows in canonical order: time, id and weight, all descending."""

    params: ToyParams
    times: Any
    ids: Any
    weights: Any
    value_keys: Any
    watermark: int  # nothing later was discarded

    clock = NO_WATERMARK

    @property
    def rows(self) -> Rows:
        return Rows(self.times, self.ids, self.weights, self.value_keys)

    @property
    def watermarks(self) -> Any:
        return np.array([self.watermark], np.int64)

    def __len__(self) -> int:
        return len(self.times)

    def digest(self) -> str:
        return hashlib.sha256(encode(self)).hexdigest()


def settled(params: ToyParams, parts: Sequence[Rows], watermark: int) -> State:
    """The state of some rows, of which those up to a watermark are not there."""
    times, ids, weights, keys = (np.concatenate(column) for column in zip(*parts, strict=True))
    kept = np.flatnonzero((times > watermark) & (weights > 0))
    kept = kept[np.lexsort((keys[kept], times[kept], weights[kept], ids[kept]))]
    last = np.ones(len(kept), bool)  # the latest copy of each (id, weight)
    last[:-1] = (np.diff(ids[kept]) != 0) | (np.diff(weights[kept]) != 0)
    kept = kept[last]
    kept = kept[np.lexsort((weights[kept], ids[kept], times[kept]))[::-1]]
    if len(kept) > params.capacity:
        watermark = int(times[kept[params.capacity]])
        kept = kept[times[kept] > watermark]
    return State(params, times[kept], ids[kept], weights[kept], keys[kept], watermark)


NOTHING = Rows(*(np.empty(0, np.int64) for _ in range(4)))


def encode(state: State) -> bytes:
    body = writing.begin(state.params.number, state.params, embed_params=True)
    marks = [] if state.watermark == NO_WATERMARK else [state.watermark]
    writing.put_watermarks(body, marks)
    writing.put_rows(body, state.times)
    return writing.seal(body, encode_rows(state.rows, state.params.value_type))


def _read_head(
    params: type[ToyParams], blob: bytes
) -> tuple[reading.Opening, tuple[int, ...], int, int | None]:
    opening = reading.open_blob(blob, params.number)
    if opening.params is None or opening.copies != 1:
        reading.refuse("a toy has its parameters in full, and one copy")
    marks = reading.read_watermarks(opening.reader)
    rows = opening.reader.varint("rows")
    if len(marks) > 1 or rows > opening.capacity:
        reading.refuse(f"{len(marks)} watermarks and {rows} rows; expected one and the capacity")
    return opening, marks, rows, opening.reader.time("first time") if rows else None


def peek(params: type[ToyParams], blob: Any) -> Head:
    blob = reading.as_bytes(blob)
    opening, _, rows, _ = _read_head(params, blob)
    reading.check_row_count(rows, opening.capacity, 1, blob)
    return Head(params.family, opening.capacity, (rows,))


def decode(kind: type[ToyParams], blob: Any, params: Any, id_key: bytes | None) -> State:
    blob = reading.as_bytes(blob)
    opening, marks, count, newest = _read_head(kind, blob)
    found = reading.params_of(opening, params, id_key)
    try:
        found = kind.like(found)
    except ParameterError as fault:
        raise CorruptSketchError(str(fault)) from None
    at = opening.reader.at
    rows, end = decode_rows(blob, at, count, newest, found.value_type)
    check_rows(found, rows)
    check_canonical(blob, at, end, rows, found.value_type)
    reading.skip_optional_sections(blob, opening.optional_flags, end)
    mark = marks[0] if marks else NO_WATERMARK
    if count and int(rows.times[-1]) <= mark:
        reading.refuse(
            f"a row of time {int(rows.times[-1])}, up to which all was discarded: {mark}"
        )
    return State(found, *rows, mark)


class ToySnapshot(OneState, Sampled):
    """A toy as it was at one moment."""

    state: State

    @property
    def complete_since(self) -> tuple[int | None, ...]:
        return marks_of(self.state.watermarks)

    @property
    def fed(self) -> Fed:
        if self.complete_since[0] is None:
            return Fed(len(self), True)
        return Fed(None, False)

    @property
    def identified(self) -> Identified:
        state = self.state
        return Identified(state.ids, state.weights, state.times, state.value_keys)

    def bags(self) -> Sequence[Any]:
        return ()

    def to_bytes(self) -> bytes:
        return encode(self.state)

    def samples(self, decay: Any, now: int) -> list[Sample]:
        state = self.state
        fading = check_answerable(state, decay, now)
        rows, decayed = Aged.of(state, fading)
        count, weights = len(decayed), state.weights[rows]
        seen = Observed(
            state.value_keys[rows], state.times[rows], state.ids[rows],
            np.zeros(count, np.int8), weights,
        )  # fmt: skip
        nothing = np.zeros(count)
        return [
            Sample(
                params=state.params, decay=decay, now=now, observed=seen, weights=weights,
                decayed=decayed, masses=decayed * weights, variances=nothing, jumps=nothing,
                exact_rows=count, known_rows=count, step=0.0, thinning=0.5, collision_bias=0.0,
                magnitude=fading.magnitude,
            )
        ]  # fmt: skip


class ToySketch(AskedOfValues, AskedOfWeights, Sketch):
    """The newest observations, exactly."""

    questions = questions_of("values", "numbers", "weights", "chosen decay")
    snapshot_type = ToySnapshot

    def __init__(self, params: ToyParams) -> None:
        self._bags = ()
        self._pending = ()  # type: ignore[assignment]  # every row is settled at once
        self._state = settled(params, [NOTHING], NO_WATERMARK)

    @property
    def params(self) -> ToyParams:
        return self._state.params

    @property
    def clock(self) -> None:
        return None

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._state.rows)

    def __len__(self) -> int:
        return len(self._state)

    def trim(self) -> None:
        self._changed()

    def _empty(self) -> Self:
        return type(self)(self.params)

    def _fold(self, *columns: Any) -> None:
        raise AssertionError("nothing is pending")

    def update(
        self, values: Any, weights: Any, timestamps: Any, ids: Any, *, not_after: int | None = None
    ) -> None:
        batch = prepare(self.params, values, weights, timestamps, ids)
        taken = batch.not_after(not_after)
        self._fed += len(batch.ids)
        self._too_late += len(batch.ids) - len(taken.ids)
        self._settle([Rows(taken.timestamps, taken.ids, taken.weights, taken.value_keys)])

    def _settle(self, parts: Sequence[Rows], watermark: int = NO_WATERMARK) -> None:
        state = self._state
        watermark = max(watermark, state.watermark)
        self._state = settled(state.params, [state.rows, *parts], watermark)
        self._changed()

    def _absorb(self, others: Sequence[Sketch | Snapshot]) -> None:
        held = [
            each.held if isinstance(each, Snapshot) else each.snapshot().held for each in others
        ]
        marks = [state.watermark for state in held]
        self._settle([state.rows for state in held], max(marks, default=NO_WATERMARK))

    def _lower_capacity(self, capacity: int) -> None:
        self._state = replace(self._state, params=self.params.with_capacity(capacity))
        self._settle([])

    def verdicts(self, values: Any, weights: Any, timestamps: Any, ids: Any) -> Any:
        after = self.copy()
        after.update(values, weights, timestamps, ids)
        batch = prepare(self.params, values, weights, timestamps, ids)
        offered = Identified(batch.ids, batch.weights, batch.timestamps, batch.value_keys)
        return compare(self.snapshot().identified, after.snapshot().identified, offered)

    def stats(self) -> Stats:
        return Stats(**self._counted())

    def state(self) -> State:
        return self._state

    @classmethod
    def from_state(cls, state: State) -> Self:
        sketch = cls(state.params)
        sketch._state = state
        return sketch

    def _freeze(self) -> ToySnapshot:
        return ToySnapshot(self._state, type(self).from_state)

    def _summary(self) -> dict[str, Any]:
        return {"rows": len(self), "capacity": self.params.capacity}

    def at(self, decay: Any, now: int, *, estimator: Any = "stratified") -> View:
        return self.snapshot().at(decay, now)


@dataclass(frozen=True)
class ToyRecipe(Recipe):
    """The newest observations, exactly."""

    family = "toy"
    sketch_type = ToySketch
    params_type = ToyParams

    params: ToyParams

    def empty(self, now: int | None = None) -> Any:
        if now is not None:
            raise ParameterError(f"now is {now!r}; expected None: a toy has no clock")
        return self.sketch_type(self.params)

    @classmethod
    def read(cls, blob: Any, *, params: Any, decay: Any, id_key: bytes | None) -> Any:
        refuse_decay(decay)
        return cls.sketch_type.from_state(decode(cls.params_type, blob, params, id_key))

    @classmethod
    def parse(cls, form: Mapping[str, Any], *, id_key: bytes | None, table: Any) -> Self:
        take_fields(form, "params")
        return cls(cls.params_type.from_dict(form["params"], id_key=id_key))


_OPTIONS = tuple(each for each in OPTIONS if each.name != "copies")

TOY = Family(
    name="toy",
    doc="the newest observations, and all of them exactly.",
    number=ToyParams.number,
    sketch=ToySketch,
    params=ToyParams,
    recipe=ToyRecipe,
    peek=partial(peek, ToyParams),
    input=Input(
        named_by="ids", value="optional", weight_bound="max_weight", clock=False, decay="query"
    ),
    options=_OPTIONS,
    questions=ToySketch.questions,
    promises=Promises(idempotent=True, canonical=True, lossless=True),
    make_example=lambda: ToyRecipe(ToyParams(max_weight=9, id_bits=16, capacity=16)),
    documented={"params": {"max_weight": 9, "capacity": 1000, "seed": 42}},
)


@dataclass(frozen=True)
class CountsParams(ToyParams):
    """As those of a toy."""

    number = 78
    family = "counts"


class CountsSketch(ToySketch):
    """Of which nobody promises that copies count once."""


@dataclass(frozen=True)
class CountsRecipe(ToyRecipe):
    """Of which nobody promises that copies count once."""

    family = "counts"
    sketch_type = CountsSketch
    params_type = CountsParams


COUNTS = replace(
    TOY,
    name="counts",
    doc="a toy that does not promise that copies count once.",
    number=CountsParams.number,
    sketch=CountsSketch,
    params=CountsParams,
    recipe=CountsRecipe,
    peek=partial(peek, CountsParams),
    promises=Promises(idempotent=False, canonical=True, lossless=True),
    make_example=lambda: CountsRecipe(CountsParams(max_weight=9, id_bits=16, capacity=16)),
)
