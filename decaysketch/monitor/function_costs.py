"""Whether a function's messages cost more than its arrivals.

Near a threshold, or with many sources, a protocol can send several messages per arrival. One
message for each arrival is the naive protocol: then sources *post* their sketches, and the hub
reads the function from these. :class:`Costs` changes to posts as soon as messages outnumber
arrivals, and tries messages again after a pause.

A trial costs at most as many messages as there are arrivals in it, and 1,000 more. The pause begins
at 10,000 arrivals and is twice as long after each failed trial. So trials add at most a tenth to
the cost of the naive protocol in the long run, and less the more of them fail.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

__all__ = ["FEWEST_ARRIVALS", "Costs"]

FEWEST_ARRIVALS: Final = 1_000
"""Messages that a trial may cost in any case, since a round begins with some for each source."""

_PAUSE: Final = 10  # times the fewest arrivals
_LONGEST_PAUSE: Final = 1 << 30


@dataclass(slots=True)
class Costs:
    """The recent costs of one function.

    Attributes:
        posts: whether sources post their sketches.
        messages, arrivals: of late. In a trial they are halved at 10,000 arrivals, so that an
            earlier time, which cost less, does not hide the present.
        pauses: failed trials since the last one that succeeded.
        fewest: :data:`FEWEST_ARRIVALS`.
    """

    posts: bool = False
    messages: int = 0
    arrivals: int = 0
    pauses: int = 0
    fewest: int = FEWEST_ARRIVALS

    @property
    def costly(self) -> bool:
        """Whether the messages outnumber the arrivals."""
        return not self.posts and self.messages > max(self.arrivals, self.fewest)

    def add(self, messages: int, arrivals: int, *, can_post: bool) -> bool:
        """Record costs. Return whether sources begin to post, or cease to."""
        self.messages += messages
        self.arrivals += arrivals
        first = _PAUSE * self.fewest
        if self.posts:
            if self.arrivals < min(first << min(self.pauses - 1, 32), _LONGEST_PAUSE):
                return False
            self.posts = False
        elif self.costly and can_post:
            self.posts = True
            self.pauses += 1
        else:
            if self.arrivals >= first and not self.costly:  # the trial succeeded
                self.messages //= 2
                self.arrivals //= 2
                self.pauses = 0
            return False
        self.messages = self.arrivals = 0
        return True

    def saved(self) -> dict[str, Any]:
        """JSON form, as keyword arguments."""
        return asdict(self)
