"""Messages about functions across sources, as JSON: :mod:`.rounds` and :mod:`.frequent`.

Every message is an object with its ``kind`` and its fields. Readers check all fields before they
build a message, and bound its size: they come from strangers. A message contains state, so a
transport may lose, repeat, delay and reorder it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_args

import numpy as np

from decaysketch.core.text.grammar import shortened
from decaysketch.errors import ParameterError
from decaysketch.monitor.fields import LARGEST, mapping_of, number, sequence_of, take_known, whole
from decaysketch.monitor.frequent import (
    ItemAnswer,
    ItemBegin,
    ItemBegun,
    ItemPoll,
    ItemReport,
    Side,
)
from decaysketch.monitor.rounds import Answer, Collect, Offer, Poll, Report, Start
from decaysketch.topk.messages import check_item, check_site

__all__ = ["MAX_CELLS", "FromSite", "ToSite", "form_of", "from_site", "to_site"]

FromSite = Report | Offer | ItemBegin | ItemReport
ToSite = Answer | Poll | Collect | Start | ItemAnswer | ItemBegun | ItemPoll

MAX_CELLS: Final = 1 << 20
"""Counters in one message."""

_Reader = Callable[[str, Any], Any]


def form_of(message: FromSite | ToSite) -> dict[str, Any]:
    """Return a message as JSON-ready form. O(its cells)."""
    fields = message._asdict()
    if isinstance(message, Start):
        fields["estimate"] = np.asarray(message.estimate, np.float64).ravel().tolist()
    return {"kind": _KINDS[type(message)]} | {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


def from_site(form: object) -> FromSite:
    """Return a source's message.

    Raises:
        ParameterError: it is none, or a field is outside its domain.
    """
    found: FromSite = _read(form, (Report, Offer, ItemBegin, ItemReport))
    if isinstance(found, Offer) and len(found.cells) != len(found.values):
        raise ParameterError(
            f"values has {len(found.values)} entries; expected {len(found.cells)}, as cells"
        )
    return found


def to_site(form: object, shape: tuple[int, int, int] = (1, 1, 1)) -> ToSite:
    """Return the hub's message.

    Args:
        form: as JSON.
        shape: matrices, depth and width of the sources' counters.

    Raises:
        ParameterError: it is none, or a field is outside its domain.
    """
    found: ToSite = _read(form, (Answer, Poll, Collect, Start, ItemAnswer, ItemBegun, ItemPoll))
    if isinstance(found, Start):
        flat = np.array(found.estimate, np.float64)
        if flat.size != np.prod(shape):
            raise ParameterError(f"estimate has {flat.size} entries; expected {np.prod(shape)}")
        found = found._replace(estimate=flat.reshape(shape))
    return found


def _read(form: object, allowed: tuple[type[Any], ...]) -> Any:
    fields = dict(mapping_of("the message", form))
    kind = fields.pop("kind", None)
    known = {_KINDS[each]: each for each in allowed}
    if not isinstance(kind, str) or kind not in known:
        raise ParameterError(f"kind is {shortened(repr(kind))}; expected one of {', '.join(known)}")
    message = known[kind]
    take_known(f"a message of kind {kind}", fields, message._fields)
    readers = {**_READERS, **_OF_KIND.get(message, {})}
    return message(**{name: readers[name](name, fields[name]) for name in message._fields})


# --------------------------------------------------------------------------------------- the fields


def _epoch(name: str, given: Any) -> int:
    return -1 if given == -1 and not isinstance(given, float) else whole(name, given)


def _flag(name: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise ParameterError(f"{name} is {shortened(repr(given))}; expected true or false")
    return given


def _site(name: str, given: Any) -> str:
    check_site(name, given)
    return str(given)


def _item(_: str, given: Any) -> str | int:
    check_item(given)
    found: str | int = given
    return found


def _side(name: str, given: Any) -> str:
    if given not in get_args(Side):
        raise ParameterError(
            f"{name} is {shortened(repr(given))}; expected one of {', '.join(get_args(Side))}"
        )
    return str(given)


def _cells(name: str, given: Any) -> tuple[int, ...]:
    return tuple(whole(name, each) for each in sequence_of(name, given, MAX_CELLS))


def _counts(name: str, given: Any) -> tuple[float, ...]:
    return tuple(number(name, each, 0.0) for each in sequence_of(name, given, MAX_CELLS))


_KINDS: Final[Mapping[type[NamedTuple], str]] = {
    Report: "report",
    Offer: "offer",
    Answer: "answer",
    Poll: "poll",
    Collect: "collect",
    Start: "start",
    ItemBegin: "item-begin",
    ItemBegun: "item-begun",
    ItemReport: "item-report",
    ItemAnswer: "item-answer",
    ItemPoll: "item-poll",
}
_READERS: Final[Mapping[str, _Reader]] = {
    "site": _site,
    "inc": whole,
    "seq": whole,
    "epoch": _epoch,
    "phi": number,
    "bound": number,
    "polled": _flag,
    "whole": _flag,
    "cells": _cells,
    "values": _counts,
    "estimate": _counts,
    "item": _item,
    "side": _side,
}
_OF_KIND: Final[Mapping[type[NamedTuple], Mapping[str, _Reader]]] = {
    ItemReport: {"estimate": lambda name, given: number(name, given, 0.0, LARGEST)},
}
