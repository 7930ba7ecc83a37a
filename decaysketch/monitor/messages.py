"""The messages between sources and hub. They contain state, so that loss, duplicates and reordering
do no harm.

A source *reports* the grants that it has, with its incarnation and a sequence number. The hub
answers with *grants*, and the highest ``(epoch, serial)`` applies. Every message may be lost,
repeated, delayed and overtaken. Each contains everything that its reader needs.

A report travels as headers on a posted sketch (:meth:`Report.headers`) or, if nothing needs
posting, as JSON (:meth:`Report.to_dict`). It covers all monitors on a stream at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from decaysketch.core.text.grammar import shortened
from decaysketch.errors import ParameterError
from decaysketch.monitor.fields import (
    MAX_MONITORS,
    NAME,
    mapping_of,
    monitor_name,
    number,
    sequence_of,
    take_known,
    whole,
)

__all__ = ["GRANTS_HEADER", "SITE_HEADER", "Answer", "Grant", "Held", "Report"]

SITE_HEADER: Final = "Decaysketch-Site"
"""Header of a report: ``<inc>.<seq>``."""

GRANTS_HEADER: Final = "Decaysketch-Grants"
"""Header of a report: ``<monitor>:<epoch>.<serial>``, by commas; empty where nothing is held."""

_DIGITS = r"[0-9]{1,16}"
_SITE = re.compile(rf"({_DIGITS})\.({_DIGITS})")
_HELD = re.compile(rf"({NAME}):({_DIGITS})\.({_DIGITS})")
_LONGEST = MAX_MONITORS * (100 + 2 * 16 + 4)  # characters of a header


class Held(NamedTuple):
    """The grant that a source has for a monitor, by its number.

    Attributes:
        epoch: the monitor's epoch.
        serial: the grant's number within the epoch.
    """

    epoch: int
    serial: int


@dataclass(frozen=True, slots=True)
class Report:
    """A source's report.

    Attributes:
        inc: incarnation of the source's process, counted on disk.
        seq: number of the report within the incarnation.
        held: the grant for each monitor for which the source has one.
    """

    inc: int
    seq: int
    held: Mapping[str, Held] = field(default_factory=dict)

    @property
    def number(self) -> tuple[int, int]:
        """The order of one source's reports."""
        return self.inc, self.seq

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "inc": self.inc,
            "seq": self.seq,
            "held": {name: list(held) for name, held in self.held.items()},
        }

    @classmethod
    def from_dict(cls, form: object) -> Self:
        """Inverse of :meth:`to_dict`. Nothing in the form is trusted.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
        """
        form = mapping_of("report", form)
        take_known("report", form, ("inc", "seq", "held"))
        given = mapping_of("held", form["held"])
        _count(len(given))
        held = {}
        for name, pair in given.items():
            pair = sequence_of(f"held of {monitor_name(name)}", pair, 2)
            if len(pair) != 2:
                raise ParameterError(f"held of {name} has {len(pair)} numbers; expected 2")
            held[name] = Held(
                whole(f"epoch of {name}", pair[0]), whole(f"serial of {name}", pair[1])
            )
        return cls(whole("inc", form["inc"]), whole("seq", form["seq"]), held)

    def headers(self) -> dict[str, str]:
        """The headers with which a posted sketch carries the report."""
        held = ",".join(f"{name}:{h.epoch}.{h.serial}" for name, h in self.held.items())
        return {SITE_HEADER: f"{self.inc}.{self.seq}", GRANTS_HEADER: held}

    @classmethod
    def from_headers(cls, site: str, held: str = "") -> Self:
        """Inverse of :meth:`headers`. Nothing in the texts is trusted.

        Raises:
            ParameterError: texts in another form, or numbers beyond 2^53.
        """
        found = _SITE.fullmatch(site)
        if found is None:
            raise ParameterError(f"{SITE_HEADER} is {shortened(site)}; expected <inc>.<seq>")
        if len(held) > _LONGEST:
            raise ParameterError(
                f"{GRANTS_HEADER} has {len(held)} characters; expected at most {_LONGEST}"
            )
        parts = [part.strip() for part in held.split(",")] if held.strip() else []
        _count(len(parts))
        of: dict[str, Held] = {}
        for part in parts:
            match = _HELD.fullmatch(part)
            if match is None:
                raise ParameterError(
                    f"{GRANTS_HEADER} has {shortened(part)}; expected <monitor>:<epoch>.<serial>"
                )
            name, *numbers = match.groups()
            if name in of:
                raise ParameterError(f"{GRANTS_HEADER} names {name} twice; expected once")
            of[name] = Held(*(whole(f"{GRANTS_HEADER} of {name}", int(each)) for each in numbers))
        inc, seq = (whole(SITE_HEADER, int(each)) for each in found.groups())
        return cls(inc, seq, of)


@dataclass(frozen=True, slots=True)
class Grant:
    """The hub's answer to a report, for one monitor.

    Attributes:
        monitor: its name.
        inc, seq: numbers of the answered report.
        epoch, serial: number of the grant. The highest applies.
        allowance: the weight that the source may leave unposted.
        lease_s: duration, counted by the source from sending the report.
        spec: JSON form of the monitor, if the source does not know the epoch yet.
    """

    monitor: str
    inc: int
    seq: int
    epoch: int
    serial: int
    allowance: float
    lease_s: float
    spec: Mapping[str, Any] | None = None

    @property
    def held(self) -> Held:
        """The grant's number."""
        return Held(self.epoch, self.serial)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, with ``spec`` only if it is set."""
        form: dict[str, Any] = {
            "monitor": self.monitor,
            "inc": self.inc,
            "seq": self.seq,
            "epoch": self.epoch,
            "serial": self.serial,
            "allowance": self.allowance,
            "lease_s": self.lease_s,
        }
        return form if self.spec is None else form | {"spec": dict(self.spec)}

    @classmethod
    def from_dict(cls, form: object) -> Self:
        """Inverse of :meth:`to_dict`. The receiver reads the spec.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
        """
        form = mapping_of("grant", form)
        numbers = ("inc", "seq", "epoch", "serial")
        take_known("grant", form, ("monitor", *numbers, "allowance", "lease_s"), ("spec",))
        spec = form.get("spec")
        inc, seq, epoch, serial = (whole(name, form[name]) for name in numbers)
        return cls(
            monitor_name(form["monitor"]),
            inc,
            seq,
            epoch,
            serial,
            number("allowance", form["allowance"], 0.0),
            number("lease_s", form["lease_s"], above=0.0),
            None if spec is None else mapping_of("spec", spec),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The hub's answer to a report, for all monitors on the stream.

    Attributes:
        grants: one for each monitor in which the source takes part. None for a report that others
            have overtaken.
        gone: monitors that the report names, and that no longer exist.
    """

    grants: tuple[Grant, ...] = ()
    gone: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON form, as part of the service's response."""
        return {"grants": [grant.to_dict() for grant in self.grants], "gone": list(self.gone)}

    @classmethod
    def from_dict(cls, form: object) -> Self:
        """Inverse of :meth:`to_dict`. Other fields in the form are ignored, and both may be
        missing.

        Raises:
            ParameterError: a grant or a name outside its domain.
        """
        form = mapping_of("answer", form)
        grants = sequence_of("grants", form.get("grants", ()), MAX_MONITORS)
        gone = sequence_of("gone", form.get("gone", ()), MAX_MONITORS)
        return cls(
            tuple(map(Grant.from_dict, grants)), tuple(monitor_name(each, "gone") for each in gone)
        )


def _count(monitors: int) -> None:
    if monitors > MAX_MONITORS:
        raise ParameterError(f"held has {monitors} monitors; expected at most {MAX_MONITORS}")
