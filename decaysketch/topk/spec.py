"""The definition of a list: a frozen spec, checked when it is made, and its JSON.

JSON from strangers is read as strictly as arguments are. An unknown field is rejected, and every
error names the field, the given value and the permitted values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Self, get_args

from decaysketch.decay import Decay
from decaysketch.decay.read import decay_of
from decaysketch.errors import ParameterError
from decaysketch.topk.messages import MAX_K, check_count, check_site, check_whole, fields_of, shown
from decaysketch.topk.ranking import Item

__all__ = ["MAX_OF_SITE", "MAX_TOTAL", "MAX_UNLISTED", "Items", "TopKSpec"]

MAX_TOTAL: Final = 100_000
"""Entries of all sites of a list in one round."""

MAX_OF_SITE: Final = 2_000
"""Entries of one site in one round; so a post of items of 100 bytes is no longer than a request."""

MAX_UNLISTED: Final = 50
"""Sites of a list that does not say which."""

Items = Literal["text", "integer"]

_FEWEST = 4  # entries of a source for each item of the list: twice the first round's request
_SHORTEST_S, _LONGEST_S = 1.0, 86_400.0


@dataclass(frozen=True, kw_only=True)
class TopKSpec:
    """A list with the k items that have the largest decayed counts over all sources.

    Attributes:
        k: number of items, 1 to MAX_K.
        decay: the weight of an event by age. ``window(3600)`` counts the last hour's events. Any
            spelling is accepted (:mod:`decaysketch.decay.read`).
        items: the type of the items.
        round_s: time from one round to the next, in seconds.
        sites: names of the sources. Each event is counted at one of them. None: every source that
            posts, at most MAX_UNLISTED.

    Raises:
        ParameterError: a field outside its domain, or k too large for this number of sources.

    Example:
        >>> spec = TopKSpec(k=20, decay="window(3600)", sites=["north", "south"])
        >>> spec.decay, spec.entries
        (window(3600), 2000)
    """

    k: int
    decay: Decay
    items: Items = "text"
    round_s: float = 10.0
    sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_whole("k", self.k, 1, MAX_K)
        object.__setattr__(self, "decay", decay_of(self.decay))
        if self.items not in get_args(Items):
            raise ParameterError(f"items is {shown(self.items)}; expected one of {get_args(Items)}")
        check_count("round_s", self.round_s)
        if not _SHORTEST_S <= self.round_s <= _LONGEST_S:
            raise ParameterError(
                f"round_s is {self.round_s}; expected a number from {_SHORTEST_S:g} to "
                f"{_LONGEST_S:g}"
            )
        if self.sites is not None:
            object.__setattr__(self, "sites", _sites(self.sites))
        if self.entries < _FEWEST * self.k:
            raise ParameterError(
                f"k is {self.k}; {self.most_sites} sites may have {self.entries} entries each in a "
                f"round: expected k of at most {self.entries // _FEWEST}"
            )

    @property
    def most_sites(self) -> int:
        """Maximum number of sources."""
        return MAX_UNLISTED if self.sites is None else len(self.sites)

    @property
    def entries(self) -> int:
        """Maximum number of entries per source at the hub in one round."""
        return min(MAX_OF_SITE, MAX_TOTAL // self.most_sites)

    def check(self, items: Iterable[Item]) -> None:
        """Reject an item with the wrong type for this list.

        Raises:
            ParameterError: it is an integer and should be a text, or the other way round.
        """
        kind = str if self.items == "text" else int
        for item in items:
            if not isinstance(item, kind):
                raise ParameterError(
                    f"an item is {shown(item)}; items of this list are of kind {self.items!r}"
                )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, with all fields."""
        return {
            "k": self.k,
            "decay": self.decay.to_dict(),
            "items": self.items,
            "round_s": self.round_s,
            "sites": None if self.sites is None else list(self.sites),
        }

    @classmethod
    def from_dict(cls, form: object, *, time_unit: str | None = None) -> Self:
        """Read a JSON form. Nothing in it is trusted.

        Args:
            time_unit: the stream's unit, if the decay may be a text with units.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
        """
        given = fields_of("a list", form, [each.name for each in fields(cls)], ("k", "decay"))
        return cls(**{**given, "decay": decay_of(given["decay"], time_unit)})


def _sites(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ParameterError(f"sites is {shown(given)}; expected a list of names")
    names = tuple(given)
    most = MAX_TOTAL // _FEWEST
    if not 0 < len(names) <= most:
        raise ParameterError(f"sites are {len(names)}; expected 1 to {most}")
    for name in names:
        check_site("a site", name)
    if len(set(names)) < len(names):
        raise ParameterError(f"sites have {len(names) - len(set(names))} repeated; expected none")
    return tuple(sorted(names))
