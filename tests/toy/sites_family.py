"""A family of no use whose sketches may contradict each other: to see that whoever promises to keep
one tries the join before.

``sites`` keeps, of each site and epoch, the longest log of events that it was given. A log that
goes on from another takes its place; two of which neither goes on from the other are a fork, and
more sites than the capacity are too many. Rows are events of a key, which nothing names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from toy_family import ToyParams

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
from decaysketch.contract.snapshot import Fed, Sampled, Snapshot
from decaysketch.core.codec import reading, writing
from decaysketch.core.hashing import PURPOSE_KEY, HashedKeys, derive, hash_keys
from decaysketch.core.params import OPTIONS
from decaysketch.core.row_check import Identified, Verdict
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import CapacityError, ConflictingSketchError, ParameterError
from decaysketch.query.catalog import AskedOfWeights, View, questions_of
from decaysketch.query.sample import Aged, Observed, Sample, check_answerable

__all__ = ["SITES", "SitesParams", "SitesRecipe", "SitesSketch"]

Name = tuple[str, int]  # site and epoch
Event = tuple[int, Any, int]  # time, key and weight
Logs = dict[Name, tuple[Event, ...]]


@dataclass(frozen=True)
class SitesParams(ToyParams):
    """As those of a toy; the capacity is one of sites."""

    number = 79
    family = "sites"

    def words_of(self, keys: Any) -> Any:
        """Keys as the words that they are counted by."""
        columns = keys if isinstance(keys, tuple) else (keys,)
        return hash_keys(columns, lambda index: derive(self.seed, PURPOSE_KEY, index))


@dataclass(frozen=True, eq=False)
class State:
    """The logs of sites, in order of name."""

    params: SitesParams
    logs: Logs

    @property
    def events(self) -> Iterator[Event]:
        return (event for log in self.logs.values() for event in log)

    @property
    def times(self) -> Any:
        return np.array([time for time, _, _ in self.events], np.int64)

    def __len__(self) -> int:
        return sum(map(len, self.logs.values()))

    def digest(self) -> str:
        return hashlib.sha256(encode(self)).hexdigest()


def joined(params: SitesParams, held: Logs, more: Mapping[Name, tuple[Event, ...]]) -> Logs:
    logs = dict(held)
    for name, log in more.items():
        present = logs.get(name, ())
        short, long = sorted((present, log), key=len)
        if long[: len(short)] != short:
            raise ConflictingSketchError(name, f"{len(present)} events", f"{len(log)} events")
        logs[name] = long
    if len(logs) > params.capacity:
        raise CapacityError(len(logs), params.capacity)
    return dict(sorted(logs.items()))


def encode(state: State) -> bytes:
    body = writing.begin(state.params.number, state.params, embed_params=True)
    writing.put_varint(body, len(state))
    logs = [[*name, log] for name, log in state.logs.items()]
    return writing.seal(body, json.dumps(logs, separators=(",", ":")).encode())


def peek(blob: Any) -> Head:
    opening = reading.open_blob(reading.as_bytes(blob), SitesParams.number)
    return Head(SitesParams.family, opening.capacity, (opening.reader.varint("rows"),))


def decode(blob: Any, params: Any, id_key: bytes | None) -> State:
    blob = reading.as_bytes(blob)
    opening = reading.open_blob(blob, SitesParams.number)
    rows = opening.reader.varint("rows")
    found = SitesParams.like(reading.params_of(opening, params, id_key))
    try:
        text = blob[opening.reader.at : len(blob) - reading.CHECKSUM_BYTES]
        logs = {
            (site, epoch): tuple((time, _key(key), weight) for time, key, weight in log)
            for site, epoch, log in json.loads(text)
        }
    except (ValueError, TypeError) as fault:
        reading.refuse(f"no logs of sites: {fault}")
    if sum(map(len, logs.values())) != rows:
        reading.refuse(f"{rows} rows are declared; there are others")
    return State(found, logs)


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


class SitesSnapshot(Sampled):
    """Sites as they were at one moment."""

    @property
    def params(self) -> SitesParams:
        return self.held.params

    def __len__(self) -> int:
        return len(self.held)

    @property
    def digest(self) -> str:
        return self.held.digest()

    @property
    def complete_since(self) -> tuple[int | None, ...]:
        return (None,)

    @property
    def newest(self) -> int | None:
        return max((time for time, _, _ in self.held.events), default=None)

    @property
    def oldest(self) -> int | None:
        return min((time for time, _, _ in self.held.events), default=None)

    @property
    def fed(self) -> Fed:
        return Fed(len(self), True)

    @property
    def identified(self) -> Identified:
        count = len(self)
        weights = np.array([weight for _, _, weight in self.held.events], np.int64)
        return Identified(np.arange(count), weights, self.held.times, np.zeros(count, np.int64))

    def parts(self) -> Sequence[Snapshot]:
        params = self.params
        return [
            SitesSnapshot(State(params, {name: log}), self._thaw)
            for name, log in self.held.logs.items()
        ]

    def to_bytes(self) -> bytes:
        return encode(self.held)

    def samples(self, decay: Any, now: int) -> list[Sample]:
        order = np.argsort(-self.held.times, kind="stable")
        state = self.identified
        shown = _Columns(self.params, state.times[order])
        fading = check_answerable(shown, decay, now)
        rows, decayed = Aged.of(shown, fading)
        weights = state.second[order][rows]
        count = len(decayed)
        seen = Observed(
            np.zeros(count, np.int64), shown.times[rows], order[rows], np.zeros(count, np.int8),
            weights,
        )  # fmt: skip
        nothing = np.zeros(count)
        return [
            Sample(
                params=self.params, decay=decay, now=now, observed=seen, weights=weights,
                decayed=decayed, masses=decayed * weights, variances=nothing, jumps=nothing,
                exact_rows=count, known_rows=count, step=0.0, thinning=0.5, collision_bias=0.0,
                magnitude=fading.magnitude,
            )
        ]  # fmt: skip


@dataclass(frozen=True)
class _Columns:
    """What a question looks at: times, latest first."""

    params: SitesParams
    times: Any
    clock = NO_WATERMARK
    watermarks = np.array([NO_WATERMARK], np.int64)

    def __len__(self) -> int:
        return len(self.times)


class SitesSketch(AskedOfWeights, Sketch):
    """The longest log of each site."""

    questions = questions_of("weights", "chosen decay")
    snapshot_type = SitesSnapshot

    def __init__(self, params: SitesParams) -> None:
        self._bags = ()
        self._pending = ()  # type: ignore[assignment]  # every row is settled at once
        self._state = State(params, {})

    @property
    def params(self) -> SitesParams:
        return self._state.params

    @property
    def clock(self) -> None:
        return None

    @property
    def nbytes(self) -> int:
        return 25 * len(self)

    def __len__(self) -> int:
        return len(self._state)

    def trim(self) -> None:
        self._changed()

    def _empty(self) -> Self:
        return type(self)(self.params)

    def _fold(self, *columns: Any) -> None:
        raise AssertionError("nothing is pending")

    def update(
        self, keys: Any, timestamps: Any, weights: Any = 1, *, source: str, epoch: int
    ) -> None:
        keys = keys.words if isinstance(keys, HashedKeys) else keys
        times = np.atleast_1d(np.asarray(timestamps)).tolist()
        given = np.broadcast_to(np.asarray(weights), len(times)).tolist()
        log = self._state.logs.get((source, epoch), ())
        more = tuple(zip(times, [_plain(key) for key in keys], given, strict=True))
        self._put({(source, epoch): log + more})
        self._fed += len(times)

    def _put(self, logs: Logs) -> None:
        held = self._state
        self._state = State(held.params, joined(held.params, held.logs, logs))
        self._changed()

    def _absorb(self, others: Sequence[Sketch | Snapshot]) -> None:
        held = [
            each.held if isinstance(each, Snapshot) else each.snapshot().held for each in others
        ]
        logs = self._state.logs
        for state in held:
            logs = joined(self.params, logs, state.logs)
        self._state = State(self.params, logs)

    def _lower_capacity(self, capacity: int) -> None:
        self._state = State(self.params.with_capacity(capacity), self._state.logs)

    def verdicts(self, *columns: Any, **options: Any) -> Any:
        return np.full(len(columns[1]), Verdict.RETAINED, np.int8)

    def stats(self) -> Stats:
        return Stats(**self._counted())

    def state(self) -> State:
        return self._state

    @classmethod
    def from_state(cls, state: State) -> Self:
        sketch = cls(state.params)
        sketch._state = state
        return sketch

    def _freeze(self) -> SitesSnapshot:
        return SitesSnapshot(self._state, type(self).from_state)

    def _summary(self) -> dict[str, Any]:
        return {"sites": len(self._state.logs)}

    def at(self, decay: Any, now: int, *, estimator: Any = "stratified") -> View:
        return self.snapshot().at(decay, now)


def _plain(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key


@dataclass(frozen=True)
class SitesRecipe(Recipe):
    """The longest log of each site."""

    family = "sites"
    sketch_type = SitesSketch
    params_type = SitesParams

    params: SitesParams

    def empty(self, now: int | None = None) -> Any:
        if now is not None:
            raise ParameterError(f"now is {now!r}; expected None: sites have no clock")
        return SitesSketch(self.params)

    @classmethod
    def read(cls, blob: Any, *, params: Any, decay: Any, id_key: bytes | None) -> Any:
        refuse_decay(decay)
        return SitesSketch.from_state(decode(blob, params, id_key))

    @classmethod
    def parse(cls, form: Mapping[str, Any], *, id_key: bytes | None, table: Any) -> Self:
        take_fields(form, "params")
        return cls(SitesParams.from_dict(form["params"], id_key=id_key))


SITES = Family(
    name="sites",
    doc="the log of every site.",
    number=SitesParams.number,
    sketch=SitesSketch,
    params=SitesParams,
    recipe=SitesRecipe,
    peek=peek,
    input=Input(
        named_by="key", value="none", weighted=True, sited=True, clock=False, decay="query"
    ),
    options=tuple(each for each in OPTIONS if each.name != "copies"),
    questions=SitesSketch.questions,
    promises=Promises(idempotent=True, canonical=True, lossless=False, conflicts=True),
    make_example=lambda: SitesRecipe(SitesParams(max_weight=9, id_bits=16, capacity=16)),
    documented={"params": {"max_weight": 9, "capacity": 1000, "seed": 42}},
)
