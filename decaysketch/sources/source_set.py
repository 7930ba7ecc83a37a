"""Queries to several sketches of one stream, one sketch for each source.

>>> import decaysketch as ds
>>> params = ds.SketchParams(seed=7)
>>> heard = {"gw-1": [1, 2, 3, 4], "gw-2": [3, 4, 5]}
>>> sketches = {name: ds.DecaySketch(params) for name in heard}
>>> for name, ids in heard.items():
...     sketches[name].update(None, 1, [100 + i for i in ids], ids)
>>> view = ds.SourceSet(sketches).at("window(1h)", now=200)
>>> view.count('"gw-1" & "gw-2"')
Estimate(2, exact, 2 rows)
>>> view.missing('"gw-2" - "gw-1"')
[Missing(id=5, time=105, heard_by=('gw-2',))]
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np

from decaysketch.contract.family import FAMILIES, Joining, family_of
from decaysketch.contract.sketch import Sketch
from decaysketch.contract.snapshot import Snapshot
from decaysketch.core.observations import check_time
from decaysketch.core.time_units import Instant, duration
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.decay.functions import check_decay
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.sources.joint import Guards, Joint, Match, guards_of
from decaysketch.sources.view import MATCH_ROW_S, CoverageView

__all__ = ["MATCH_ROW_S", "Disagreement", "Guard", "SourceSet"]

Guard = int | str | Literal["auto", "unbounded"]

_KEPT = 16  # joint samples, those used last


class Disagreement(NamedTuple):
    """How far duplicates of a message differ in time.

    Attributes:
        messages: the number of messages that two or more sources store.
        largest: the largest difference among them.
        uncut: the number of them at levels that discarded nothing, whose differences no watermark
            cut off. At most ``3 / uncut`` of all messages differ by more than ``uncut_largest``,
            with 95 % confidence.
        uncut_largest: the largest difference among these.
        lags: for each source, the median time by which its duplicates lie before the latest one. A
            clock that is ahead has 0, and all others have about its offset.
        guards: for each source. None: unbounded.
    """

    messages: int
    largest: int
    uncut: int
    uncut_largest: int
    lags: dict[str, float]
    guards: dict[str, int | None]


class SourceSet:
    """Sketches of one stream by source.

    Args:
        sketches: by name: sketches, snapshots or their bytes, with equal parameters. Capacities may
            differ.
        guard: bound on the difference in time between duplicates of one message, in the stream's
            unit or a length such as "2s". "auto": twice the largest observed difference, for each
            source. "unbounded": only levels that discarded nothing answer.
        from_level: the sketches contain only messages with this top level or above, as relays
            forward them. Lower levels are not read. Family ``decay``. Default 0: all messages.
        settle: time that a source may take to post. A query looks back by this time, so that a
            message that a source will still post does not count as unheard by it. Default 0.

    Attributes:
        names: the source names, sorted. The order in which they were given changes no result.

    Raises:
        ParameterError: there is no source, the family has no joint sample, or the guard or the
            level is invalid.
        IncompatibleSketchError: sketches of different streams.
        CorruptSketchError: the bytes are no sketch.

    Thread-safe.
    """

    def __init__(
        self,
        sketches: Mapping[str, Sketch | Snapshot | bytes],
        *,
        guard: Guard = "auto",
        settle: int | str | None = None,
        from_level: int = 0,
    ) -> None:
        if not sketches:
            raise ParameterError("sketches is empty; expected one source at least")
        self.names: tuple[str, ...] = tuple(sorted(sketches))
        self.snapshots = [_snapshot_of(name, sketches[name]) for name in self.names]
        self._joining = _joining_of(self.snapshots)
        if from_level:
            self.snapshots = [each.complete_from(from_level) for each in self.snapshots]
        self._index = {name: number for number, name in enumerate(self.names)}
        unit = self.params.time_unit
        self.guard = guard if guard in ("auto", "unbounded") else _length("guard", guard, unit)
        self.settle = 0 if settle is None else _length("settle", settle, unit)
        self._kept: OrderedDict[tuple[int, ...], list[Joint]] = OrderedDict()
        self._lock = Lock()

    @property
    def params(self) -> Any:
        """Parameters that all sketches share, except for the capacity."""
        return self.snapshots[0].params

    @property
    def has_fixed_decay(self) -> bool:
        """Whether the decay was chosen when the sketches were built."""
        return getattr(self.snapshots[0], "decay", None) is not None

    @property
    def by_level(self) -> bool:
        """Whether each row has one own level per source. See
        :class:`~decaysketch.contract.family.Joining`.
        """
        return self._joining.by_level

    @property
    def rows(self) -> int:
        """Number of rows in all sources."""
        return sum(map(len, self.snapshots))

    @property
    def cost_s(self) -> float:
        """Approximate maximum processor time to match all sources, in seconds."""
        return self.rows * MATCH_ROW_S

    def index(self, name: str, *, field: str | None = None) -> int:
        """Return the number of a source.

        Raises:
            ParameterError: no source has this name. The error begins with the field, if given.
        """
        if name not in self._index:
            some = ", ".join(map(repr, self.names[:8])) + ", ..." * (len(self.names) > 8)
            given = (
                f"there is no source {name!r:.80}" if field is None else f"{field} is {name!r:.80}"
            )
            raise ParameterError(f"{given}; expected one of {some}")
        return self._index[name]

    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        without_silence: bool = False,
        values_from: str | None = None,
    ) -> CoverageView:
        """Return a view that computes results under a decay, at a time.

        Args:
            decay: weight by age, or a text such as "window(1d)". None if the sketches have a fixed
                decay.
            now: query time. None: the time of the newest message. The view looks back from
                ``now - settle``.
            without_silence: skip the messages from periods in which one of the queried sources
                heard nothing (see :meth:`CoverageView.silences`).
            values_from: read the values that this source reported. A message that it did not hear
                has no value. Default: the value of the latest duplicate among the sources read.

        Raises:
            ParameterError: the decay, the time or the source does not exist.
        """
        newest = max(self.snapshots, key=lambda each: (each.newest is not None, each.newest or 0))
        chosen, at = newest.asked(decay, now)
        at = check_time("now", at) - self.settle
        if not self.has_fixed_decay:
            chosen = check_decay(chosen)
        elif decay is not None:
            raise ParameterError(
                f"decay is {decay!r:.100}; expected None: it was fixed when the sketches were built"
            )
        if values_from is not None:
            self.index(values_from, field="values_from")
        return CoverageView(self, chosen, at, without_silence, values_from)

    def joints(self, among: Sequence[int]) -> list[Joint]:
        """Return the joint samples of some sources, one for each hash function. The last 16 are
        kept.

        Raises:
            ParameterError: more than 2^30 rows.
        """
        key = tuple(among)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        matches = self._joining.matches([self.snapshots[number] for number in key])
        guards = self._guards(matches)
        made = [self._joining.joint(match, guards, copy) for copy, match in enumerate(matches)]
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made

    def _guards(self, matches: Sequence[Match]) -> Guards:
        return guards_of(np.max([match.lags for match in matches], axis=0), self.guard)

    def disagreement(self, among: Sequence[int] | None = None) -> Disagreement:
        """Return how far duplicates differ in time, and the guards that follow, for all sources or
        for ``among``.
        """
        among = range(len(self.names)) if among is None else among
        joint = self.joints(among)[0]
        return _disagreement(joint, [self.names[number] for number in among])

    def clocks_disagree(self, joint: Joint) -> bool:
        """Whether twice a guard exceeds the time between a source's two newest watermarks: then
        few rows have a known history."""
        if not joint.guards.any():
            return False
        return any(
            2 * int(guard) > between
            for state, guard in zip(joint.match.states, joint.guards.tolist(), strict=True)
            if (between := _between_marks(state.watermarks)) is not None
        )


def _between_marks(marks: Any) -> int | None:
    known = np.unique(marks[marks != NO_WATERMARK])
    return int(known[-1] - known[-2]) if len(known) > 1 else None


def _disagreement(joint: Joint, names: Sequence[str]) -> Disagreement:
    match = joint.match
    shared = match.degrees > 1
    apart = (match.latest - match.earliest)[shared]
    cut = np.max([state.watermarks for state in match.states], axis=0) != NO_WATERMARK
    uncut = apart[~cut[match.levels[shared]]]
    lags = {}
    for number, name in enumerate(names):
        messages = match.messages_of(number)
        late = match.latest[messages] - match.states[number].times
        late = late[shared[messages]]
        lags[name] = float(np.median(late)) if len(late) else math.nan
    guards = [None if guard >= 1 << 62 else guard for guard in joint.guards.tolist()]
    return Disagreement(
        len(apart), int(apart.max(initial=0)), len(uncut), int(uncut.max(initial=0)), lags,
        dict(zip(names, guards, strict=True)),
    )  # fmt: skip


def _length(name: str, given: Any, unit: str) -> int:
    """Return a length of time in complete units, rounded up."""
    try:
        found = duration(given, unit, name=name)
    except ParameterError as fault:
        if name != "guard":
            raise
        raise ParameterError(f"{fault}, 'auto' or 'unbounded'") from None
    if isinstance(found, bool) or not 0 <= found < 1 << 62:
        raise ParameterError(
            f"{name} is {given!r}; expected a length of time, 0 or more"
            + (", 'auto' or 'unbounded'" if name == "guard" else "")
        )
    return math.ceil(found)


def _snapshot_of(name: str, given: Any) -> Snapshot:
    if isinstance(given, Snapshot):
        return given
    if isinstance(given, Sketch):
        return given.snapshot()
    if isinstance(given, bytes | bytearray | memoryview):
        family = FAMILIES[family_of(given)]
        found = family.recipe.read(given, params=None, decay=None, id_key=None)
        return found.snapshot()
    raise ParameterError(
        f"source {name!r} is a {type(given).__name__}; expected a sketch, a snapshot or bytes"
    )


def _joining_of(snapshots: Sequence[Snapshot]) -> Joining:
    """Return how sources in one family with equal parameters are joined.

    Raises:
        ParameterError: the family has no joint sample.
        IncompatibleSketchError: the parameters differ.
    """
    kinds = [
        next(
            family for family in FAMILIES.values()
            if family.sketch.snapshot_type is type(each) and family.params is type(each.params)
        )
        for each in snapshots
    ]  # fmt: skip
    for kind, each in zip(kinds[1:], snapshots[1:], strict=True):
        if kind is not kinds[0]:
            raise IncompatibleSketchError({"family": (kinds[0].name, kind.name)})
        if each.params.fingerprint != snapshots[0].params.fingerprint:
            raise IncompatibleSketchError(snapshots[0].params.differences(each.params))
        fixed: Any = getattr(snapshots[0], "decay", None)
        other: Any = getattr(each, "decay", None)
        if fixed is not None and fixed.to_dict() != other.to_dict():
            raise IncompatibleSketchError({"decay": (fixed, other)})
    if kinds[0].joining is None:
        able = ", ".join(repr(name) for name, each in FAMILIES.items() if each.joining)
        raise ParameterError(
            f"sources of the family {kinds[0].name!r} have no joint sample, because their rows do "
            f"not identify messages; expected the family {able}"
        )
    return kinds[0].joining
