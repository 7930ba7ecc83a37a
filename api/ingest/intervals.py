"""Check the number interval that a post declares, as far as its sketch can show it.

An interval uses up its numbers for ever. So an interval that claims too many, by mistake or on
purpose, silences its source. Two bounds apply:

* ``next - first`` is at most ``max_interval``: more elements than one sketch is ever fed.
* A sketch without any watermark has discarded nothing: each number that it was fed is a row, except
  for zero elements in a sum, elements rejected by ``not_after``, and duplicates. So at most
  ``UNSHOWN`` numbers in an interval may lack a row.

A sketch with watermarks shows no more than that: its clock may have expired any number of elements,
and a sampler over 10^9 elements keeps about as many rows as one over 10^6. The numbers of its rows
are not checked: their names are hashed together with the sampler's own name.
"""

from __future__ import annotations

from api.errors import Fault, InvalidRequestError
from api.journal.model import Interval
from decaysketch import Snapshot

__all__ = ["UNSHOWN", "check_interval", "check_length", "interval_of"]

UNSHOWN = 1 << 20  # a Sensor posts after 10,000 rows, or as many as one update brings


def interval_of(first: int | None, one_past: int | None) -> Interval | None:
    """Return a request's interval, or None where it has none.

    Raises:
        InvalidRequestError: a bound is missing, or the interval contains no number.
    """
    if first is None and one_past is None:
        return None
    for name, other, given in (("first", "next", first), ("next", "first", one_past)):
        if given is None:
            raise InvalidRequestError(
                f"{other} is given and {name} is not: an interval is given by both",
                [Fault(field=name, reason=f"missing, beside {other}")],
            )
    assert first is not None
    assert one_past is not None
    if first >= one_past:
        raise InvalidRequestError(
            f"the interval [{first}, {one_past}) is empty",
            [Fault(field="next", reason=f"expected more than first, {first}", value=one_past)],
        )
    return Interval(first, one_past)


def check_length(interval: Interval, max_interval: int) -> None:
    """Reject an interval with more numbers.

    Raises:
        InvalidRequestError: naming the number count and its limit.
    """
    if interval.next - interval.first > max_interval:
        _refuse(interval, max_interval, f"at most {max_interval} are taken (max_interval)")


def check_interval(interval: Interval, sketch: Snapshot, *, max_interval: int) -> None:
    """Reject an interval that does not fit the sketch posted with it.

    Args:
        interval: the declared interval.
        sketch: the posted sketch.
        max_interval: maximum number count.

    Raises:
        InvalidRequestError: naming the number count and its limit.
    """
    check_length(interval, max_interval)
    numbers = interval.next - interval.first
    if numbers - len(sketch) > UNSHOWN and all(mark is None for mark in sketch.complete_since):
        most = len(sketch) + UNSHOWN
        why = (
            f"the sketch has {len(sketch)} rows and no watermark, so it has discarded nothing: at "
            f"most {most} are believed"
        )
        _refuse(interval, most, why)


def _refuse(interval: Interval, most: int, why: str) -> None:
    raise InvalidRequestError(
        f"the interval [{interval.first}, {interval.next}) has {interval.next - interval.first} "
        f"numbers; {why}",
        [
            Fault(
                field="next",
                reason="too far past first",
                value=interval.next,
                expected=f"at most {interval.first + most}",
            )
        ],
    )
