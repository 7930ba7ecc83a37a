"""The common part of all sketches in one stream: family, parameters and, if it is fixed, a
decay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from decaysketch.contract.family import FAMILIES, Blob, Family, family_of
from decaysketch.contract.sketch import Sketch
from decaysketch.contract.snapshot import Snapshot
from decaysketch.core.params import BuildParams, Differences, Form
from decaysketch.decay.integral import IntegralDecay, StepTable
from decaysketch.errors import IncompatibleSketchError, ParameterError

__all__ = ["Own", "Recipe", "SeededRecipe", "refuse_decay", "take_fields"]

Own = Any
"""Parameters, or a sketch, of the family's own class, which the contract cannot name."""


class Recipe(ABC):
    """The sketch configuration of a stream. :func:`decaysketch.families.recipe_of` makes one.

    An immutable value. It can be pickled.

    Attributes:
        family: name of the sketch kind, a key in :data:`decaysketch.families.FAMILIES`.
        sketch_type: class of the sketches.
        params_type: class of their parameters.
        params: their parameters.
        decay: of every query, if it is fixed.
    """

    family: ClassVar[str]
    sketch_type: ClassVar[type[Any]]  # called with arguments of its own
    params_type: ClassVar[type[BuildParams]]

    params: BuildParams
    decay: IntegralDecay | None = None

    @property
    def kind(self) -> Family:
        """The :class:`Family`."""
        return FAMILIES[self.family]

    def steps(self) -> StepTable | None:
        """The computed form of a fixed decay, computed once because it may take long. None if the
        query chooses the decay.
        """
        return None

    @abstractmethod
    def empty(self, now: int | None = None) -> Sketch:
        """Return an empty sketch, with its clock at ``now`` if given. The sketch does not check
        times.

        Raises:
            ParameterError: the parameters do not suit the family, or ``now`` is no time or given to
                a sketch without a clock.
        """

    def decode(self, blob: Blob) -> Sketch:
        """Read a sketch from this stream. Nothing in the bytes is trusted.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sketch from another stream, or another family.
        """
        self._check_family(blob)
        sketch = self.read(blob, params=self.params, decay=self.decay, id_key=None)
        sketch.looks_at_times = False
        return sketch

    def decode_snapshot(self, blob: Blob) -> Snapshot:
        """Read a sketch from this stream for merging or queries, not for updates. As
        ``decode(blob).snapshot()``, without a second copy of the rows if the family can.

        Raises:
            CorruptSketchError, IncompatibleSketchError: as :meth:`decode`.
        """
        return self.decode(blob).snapshot()

    def _check_family(self, blob: Blob) -> None:
        found = family_of(blob)
        if found != self.family:
            raise IncompatibleSketchError({"family": (self.family, found)})

    @classmethod
    @abstractmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> Sketch:
        """Read a sketch in this family. See :func:`decaysketch.families.decode`."""

    def join(self, snapshots: Iterable[Snapshot]) -> Snapshot:
        """Return a sketch with everything that any of them saw, at their smallest capacity."""
        merged = self.empty()
        for each in snapshots:  # one after the other: each may be as large as its sketch once more
            merged.merge(each)
        return merged.snapshot()

    @classmethod
    @abstractmethod
    def parse(cls, form: Form, *, id_key: bytes | None, table: IntegralDecay | None) -> Self:
        """Read a sketch configuration for this family from its JSON form. See
        :func:`decaysketch.families.recipe_from_dict`.
        """

    @classmethod
    def of(cls, sketch: Own) -> Self:
        """Return the sketch configuration of a sketch in this family."""
        return cls(sketch.params)  # type: ignore[call-arg]  # a dataclass of the parameters alone

    @classmethod
    def built_with(cls, params: object, decay: IntegralDecay | None) -> Self | None:
        """Return the sketch configuration for parameters, and for a decay if one is fixed. Return
        None if they belong to another family.
        """
        if type(params) is not cls.params_type or decay is not None:
            return None
        return cls(params)  # type: ignore[call-arg]  # a dataclass of the parameters alone

    @classmethod
    def normal_form(cls, form: Form, *, id_key: bytes | None, read_decay: bool) -> dict[str, Any]:
        """See :func:`decaysketch.families.normal_form`."""
        return cls.parse(form, id_key=id_key, table=None).to_dict()

    def differences(self, other: Recipe) -> Differences:
        """Return every difference that prevents a merge, as ``{name: (ours, theirs)}``."""
        if self.family != other.family:
            return {"family": (self.family, other.family)}
        return self.params.differences(other.params)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form, without secrets and tables. See
        :func:`decaysketch.families.recipe_from_dict`.
        """
        return {"family": self.family, "params": self.params.to_dict()}


class SeededRecipe(Recipe):
    """For sketches with a clock, a decay chosen by the query, and hashes that follow from the seed:
    no secret keys them.
    """

    #: What the seed hashes, and how: of the error about a secret.
    hashed: ClassVar[str]

    def empty(self, now: int | None = None) -> Any:
        sketch = self.sketch_type(self.params)
        sketch.looks_at_times = False
        if now is not None:
            sketch.advance(now)
        return sketch

    @classmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> Any:
        refuse_decay(decay)
        if id_key is not None:
            raise IncompatibleSketchError({"id_key": ("given", f"none, {cls.hashed} by the seed")})
        return cls.sketch_type.from_bytes(blob, params=params)

    @classmethod
    def parse(cls, form: Form, *, id_key: bytes | None, table: IntegralDecay | None) -> Self:
        take_fields(form, "params")
        if id_key is not None:
            raise ParameterError(f"id_key is given; family {cls.family!r} is keyed by its seed")
        return cls(cls.params_of(form["params"]))  # type: ignore[call-arg]  # as in ``of``

    @classmethod
    @abstractmethod
    def params_of(cls, fields: Form) -> Own:
        """Return the family's parameters from their JSON form."""


def refuse_decay(decay: IntegralDecay | None) -> None:
    """Reject a decay, for families whose decay is chosen at query time."""
    if decay is not None:
        raise IncompatibleSketchError({"decay": (decay, "none, it is chosen at query time")})


def take_fields(form: Form, *names: str) -> None:
    """Reject a JSON form that does not have exactly these fields, each an object. A decay may also
    be a text.
    """
    if unknown := sorted(form.keys() - {"family", *names}):
        raise ParameterError(f"unknown field {unknown[0]!r}; known are {sorted(names)}")
    for name in names:
        if not isinstance(form.get(name), (Mapping, str) if name == "decay" else Mapping):
            raise ParameterError(f"{name} is {form.get(name)!r}; expected an object of fields")
