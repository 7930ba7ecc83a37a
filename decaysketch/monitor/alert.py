"""When an alert starts and ends: ``for_s`` and ``keep_firing_s``, as in Prometheus.

A value and a function of it: who keeps an :class:`Alert` beside each monitor steps it with every
state and tells others when its ``phase`` changes. A state that is uncertain changes nothing: an
alert neither fires nor ends because a site is silent; only the time of the state that is in
question goes on.
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
    """Where an alert stands.

    Attributes:
        phase: "inactive"; "pending", the condition holds but not yet for ``for_s``; or "firing".
        since: time at which the phase began.
        cleared: of a firing alert, since when the condition is gone; None while it is not.
    """

    phase: Phase = "inactive"
    since: float = 0.0
    cleared: float | None = None

    def step(self, verdict: Verdict, now: float, *, for_s: float, keep_firing_s: float) -> Alert:
        """The alert after a state; itself where nothing changes.

        Args:
            verdict: of the monitor's state.
            now: time of the state, in seconds, not before the last one.
            for_s, keep_firing_s: of the spec.
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
