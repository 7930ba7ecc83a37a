"""Warnings about suspicious posts: times that are no dates in the stream's unit, mappings that
rename stored readings, and observations that look like duplicates of one another.

The server rejects a post with such times: a stream with times in two units answers no query. In a
new stream, few such times are enough. In a stream that already has dates, nearly all times must be
such, so that a device without a clock does not block others. A stream that counts from its own
beginning accepts all times: after a week its milliseconds would be dates in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from api.errors import Fault, InvalidRequestError
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.core.plausible_times import dated, doubt
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.mapping import Map

__all__ = [
    "doubts_of_columns",
    "doubts_of_copies",
    "doubts_of_ids",
    "doubts_of_maps",
    "doubts_of_sketches",
    "doubts_of_unit",
    "doubts_of_views",
    "refuse_other_unit",
]

_CALLED = {
    "nsec": "ns", "nanos": "ns", "nanoseconds": "ns", "usec": "us", "micros": "us", "µs": "us",
    "microseconds": "us", "msec": "ms", "millis": "ms", "milliseconds": "ms", "sec": "s",
    "secs": "s", "second": "s", "seconds": "s", "mins": "min", "minute": "min", "minutes": "min",
    "hr": "h", "hour": "h", "hours": "h", "day": "d", "days": "d",
}  # fmt: skip
_MANY = 10  # observations
_OF = 100  # observations of a post, at either end one may have a clock that says anything


def doubts_of_columns(unit: str, times: npt.NDArray[np.int64]) -> list[str]:
    """Return warnings about accepted observations."""
    if not len(times):
        return []
    return _said(unit, int(times.min()), int(times.max()))


def doubts_of_sketches(unit: str, sketches: Iterable[Snapshot]) -> list[str]:
    """Return warnings about the content of sketches, all together."""
    spans = [(each.oldest, each.newest) for each in sketches]
    oldest = min((first for first, _ in spans if first is not None), default=None)
    newest = max((last for _, last in spans if last is not None), default=None)
    return _said(unit, oldest, newest)


def doubts_of_views(rows: int, reason: str) -> list[str]:
    """Return a warning that a derived stream did not accept so many rows.

    Args:
        rows: so many.
        reason: the reason for the last ones.
    """
    if not rows:
        return []
    return [
        f"{rows} rows of the stream it is derived from were not taken since this server has begun: "
        f"{reason}. Devices may be missing here"
    ]


def doubts_of_copies(disagreeing: int) -> list[str]:
    """Return a warning about observations that share identity and time with another one, and have
    another value.
    """
    if not disagreeing:
        return []
    which = "1 observation has" if disagreeing == 1 else f"{disagreeing} observations have"
    return [
        f"{which} the id and the time of another one, and another value: these are no copies, and "
        "of an id and a time the largest value alone stays; does what names them leave out what "
        "tells them apart, such as the tag of a machine?"
    ]


def doubts_of_ids(moments: int, identities: int) -> list[str]:
    """Return a warning about a body whose observations have few ids, at many times."""
    if moments < _MANY or moments <= 2 * identities:
        return []
    return [
        f"observations of {moments} different times have {identities} "
        f"id{'s' * (identities != 1)}, and of each the latest alone stays: an id names a message, "
        'such as ["device", 17], and not the device'
    ]


def doubts_of_unit(unit: str) -> list[str]:
    """Return a warning about a time unit without a clock whose name resembles a unit with one."""
    if unit in NANOSECONDS or (meant := _CALLED.get(unit.lower())) is None:
        return []
    return [
        f"time_unit is {unit!r}, of which no clock is known: no length such as 1h is known in it, "
        f"and every question needs a now; did you mean {meant!r}?"
    ]


def doubts_of_maps(before: Mappings, now: Mappings) -> list[str]:
    """Return a warning about new mappings that give accepted readings other ids."""
    gone = [each for each in before.map if each not in now.map]
    said = []
    for place, each in enumerate(now.map):
        if each in before.map:
            continue
        same = [other for other in gone if _read_alike(each, other)]
        if same and not any(_same(each, other, each.named_by) for other in same):
            changed = [name for name in each.named_by if not _same(each, same[0], (name,))]
            said.append(
                f"map[{place}] has another {' and '.join(changed)}, of which ids are made: what "
                "the stream holds is counted again if it is sent again; delete the stream and "
                "post anew, or post what is new only"
            )
    return said


def _read_alike(one: Map, other: Map) -> bool:
    """Return whether two mappings read some readings in common. A mapping that fills columns may
    read every measurement or metric.
    """
    if one.columns is None or other.columns is None:
        return _same(one, other, ("format", *one.reads))
    wide = None in (getattr(one, "series_name", ""), getattr(other, "series_name", ""))
    return _same(one, other, ("format",)) and (wide or _same(one, other, one.reads))


def _same(one: Map, other: Map, names: Iterable[str]) -> bool:
    return all(getattr(one, name, None) == getattr(other, name, None) for name in names)


def refuse_other_unit(
    stream: Stream,
    unit: str,
    times: npt.NDArray[np.int64],
    *,
    cure: str = "check_units=false, which takes them as they are",
) -> None:
    """Reject observations with times that are unlikely in the unit, by the module's rule. O(times).
    A suspicious post also takes the time to join the stream's content.

    Args:
        stream: their destination.
        unit: the declared unit of the times.
        times: the observations' times.
        cure: the remedy that the message names.

    Raises:
        InvalidRequestError: they are dates in another unit.
    """
    if not len(times) or all(dated(unit, int(each)) for each in (times.min(), times.max())):
        return
    few = (len(times) - 1) // _OF, len(times) - 1 - len(times) // _OF
    oldest, newest = np.partition(times, few)[[*few]].tolist()
    if (found := doubt(unit, oldest, newest)) is None:
        return
    if (held := stream.snapshot().newest) is not None:
        nearly_all = doubt(unit, oldest, oldest) and doubt(unit, newest, newest)
        if not nearly_all or not dated(stream.recipe.params.time_unit, held):
            return
    expected = f"times in {unit}, or {cure}"
    raise InvalidRequestError(
        f"times are hardly in {unit}: {found}; expected {expected}",
        [Fault(field="time", reason=str(found), value=found.time, expected=expected)],
    )


def _said(unit: str, oldest: int | None, newest: int | None) -> list[str]:
    found = doubt(unit, oldest, newest)
    return [] if found is None else [f"times are hardly in {unit}: {found}"]
