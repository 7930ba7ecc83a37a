"""When an alert starts and ends: ``for_s`` and ``keep_firing_s``, as in Prometheus.

A value and a function on it. The caller keeps an :class:`Alert` per monitor, steps it with every
state, and notifies receivers when its ``phase`` changes. An uncertain state changes nothing: an
alert neither fires nor ends because a source is silent. Only the time of the state in question
continues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from decaysketch.errors import ParameterError
from decaysketch.monitor.fields import mapping_of, number, take_known

__all__ = ["Alert", "Phase", "Verdict"]

Verdict = Literal["calm", "firing", "uncertain"]
Phase = Literal["inactive", "pending", "firing"]
_PHASES = ("inactive", "pending", "firing")


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert's current state.

    Attributes:
        phase: "inactive"; "pending", the condition holds but not yet for ``for_s``; or "firing".
        since: time at which the phase began.
        cleared: for a firing alert, the time since which the condition is gone. None while it is
            not.
    """

    phase: Phase = "inactive"
    since: float = 0.0
    cleared: float | None = None

    def step(self, verdict: Verdict, now: float, *, for_s: float, keep_firing_s: float) -> Alert:
        """Return the alert after a state, or itself if nothing changes.

        Args:
            verdict: the state's verdict.
            now: time of the state, in seconds, not before the last one.
            for_s, keep_firing_s: from the spec.
        """
        if verdict == "firing":
            if self.phase == "firing":
                return self if self.cleared is None else replace(self, cleared=None)
            began = self if self.phase == "pending" else Alert("pending", now)
            return Alert("firing", now) if now - began.since >= for_s else began
        if verdict == "uncertain" or self.phase == "inactive":
            return self
        if self.phase == "pending":
            return Alert("inactive", now)
        cleared = now if self.cleared is None else self.cleared
        if now - cleared >= keep_firing_s:
            return Alert("inactive", now)
        return replace(self, cleared=cleared)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {"phase": self.phase, "since": self.since, "cleared": self.cleared}

    @classmethod
    def from_dict(cls, form: object) -> Self:
        """Inverse of :meth:`to_dict`.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
        """
        form = mapping_of("alert", form)
        take_known("alert", form, ("phase", "since", "cleared"))
        if form["phase"] not in _PHASES:
            raise ParameterError(
                f"phase is {form['phase']!r:.100}; expected one of {', '.join(_PHASES)}"
            )
        cleared = form["cleared"]
        return cls(
            form["phase"],
            number("since", form["since"]),
            None if cleared is None else number("cleared", cleared),
        )
