"""How you define a function across sources (:mod:`decaysketch.monitor.functions`)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Self, get_args

from decaysketch.decay import Decay
from decaysketch.decay.read import decay_of
from decaysketch.errors import ParameterError
from decaysketch.monitor.fields import mapping_of, number, sequence_of, take_known, url_of
from decaysketch.monitor.frequent import check_threshold
from decaysketch.monitor.rounds import ZoneMaker
from decaysketch.monitor.safe import InnerProductZone, SelfJoinZone, Zone, check_theta
from decaysketch.topk.messages import check_site

__all__ = ["MAX_FUNCTION_SITES", "FunctionSpec"]

Kind = Literal["self_join", "inner_product", "frequent"]

MAX_FUNCTION_SITES: Final = 256
"""Sources per function. Beyond 128, a message per arrival is often cheaper."""

MAX_COUNTERS: Final = 1 << 18
"""Counters per function, over all sources."""


@dataclass(frozen=True, kw_only=True)
class FunctionSpec:
    """A function over all sources' counters.

    Attributes:
        kind: "self_join", "inner_product" or "frequent".
        decay: an event's weight by age. Any spelling is accepted (:mod:`decaysketch.decay.read`).
        theta: permitted relative error, above 0 and below 1.
        sites: the sources that count, each event at one source.
        threshold: for "frequent": the decayed count over all sources. For other kinds: the value
            from which an alert fires. None: no alert.
        lease_s: time in seconds after which a source that was not heard is silent, 5 to 86,400.
        other: for "inner_product": the second stream's name. None: sources cannot post where
            that would cost less.
        webhook: URL that receives the function's alerts. None: no messages.

    Raises:
        ParameterError: a field outside its domain.
    """

    kind: Kind
    decay: Decay
    theta: float
    sites: tuple[str, ...]
    threshold: float | None = None
    lease_s: float = 60.0
    other: str | None = None
    webhook: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ParameterError(
                f"kind is {self.kind!r}; expected one of {', '.join(get_args(Kind))}"
            )
        object.__setattr__(self, "decay", decay_of(self.decay))
        check_theta(self.theta)
        names = sequence_of("sites", self.sites, MAX_FUNCTION_SITES)
        for name in names:
            check_site("a site", name)
        if not names or len(set(names)) < len(names):
            raise ParameterError(f"sites has {len(names)} entries; expected one or more, each once")
        object.__setattr__(self, "sites", tuple(sorted(names)))
        number("lease_s", self.lease_s, 5.0, 86_400.0)
        self._check_alert()
        if self.other is not None:
            if self.kind != "inner_product":
                raise ParameterError(
                    f"other is {self.other!r} for the kind {self.kind}; expected it for the kind "
                    "inner_product alone"
                )
            check_site("other", self.other)

    def _check_alert(self) -> None:
        if self.threshold is not None:
            object.__setattr__(self, "threshold", check_threshold(self.threshold))
        elif self.kind == "frequent" or self.webhook is not None:
            reason = "frequent items" if self.kind == "frequent" else "a webhook"
            raise ParameterError(f"threshold is None; expected one for {reason}")
        if self.webhook is not None:
            url_of("webhook", self.webhook)

    @property
    def zone(self) -> type[Zone]:
        """The function on counters, with its zone in a round. "frequent" has none."""
        return InnerProductZone if self.kind == "inner_product" else SelfJoinZone

    @property
    def zone_of(self) -> ZoneMaker:
        """Builds a round's zone."""
        zone, theta = self.zone, self.theta
        return lambda estimate: zone(estimate, theta)

    @property
    def can_post(self) -> bool:
        """Whether sources may post their sketches: the hub knows all streams for these."""
        return self.kind != "inner_product" or self.other is not None

    def shape(self, depth: int, width: int) -> tuple[int, int, int]:
        """How many matrices, rows and columns a source counts in.

        Raises:
            ParameterError: all sources together have more than :data:`MAX_COUNTERS`.
        """
        matrices = 2 if self.kind == "inner_product" else 1
        if len(self.sites) * matrices * depth * width > MAX_COUNTERS:
            raise ParameterError(
                f"{len(self.sites)} sites have {matrices * depth * width} counters each; expected "
                f"at most {MAX_COUNTERS} in all: take a narrower sketch or fewer sites"
            )
        return matrices, depth, width

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, with all fields."""
        return {
            "kind": self.kind, "decay": self.decay.to_dict(), "theta": self.theta,
            "sites": list(self.sites), "threshold": self.threshold, "lease_s": self.lease_s,
            "other": self.other, "webhook": self.webhook,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, form: object, *, time_unit: str | None = None) -> Self:
        """Read a JSON form. Nothing in it is trusted.

        Args:
            time_unit: the stream's unit, if the decay may be a text with units.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
        """
        given = mapping_of("a function", form)
        known = [each.name for each in fields(cls)]
        take_known("a function", given, known[:4], known[4:])
        return cls(**{**given, "decay": decay_of(given["decay"], time_unit)})
