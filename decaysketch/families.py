"""Every kind of sketch under one face: made empty, read from bytes and merged without its name.

A *family* is a kind of sketch with a byte of its own on the wire. A :class:`Recipe` is what all
sketches of one stream share: the family, its parameters and, for an integral decay, the decay. Who
moves sketches about (batch jobs, an aggregator) holds recipes and bytes, and needs no case for
each family; what a sketch can be asked stays with its class.

========  ====  ==================  =============================  ============================
family    byte  recipe              sketch                         built with
========  ====  ==================  =============================  ============================
decay     1     ``DecayRecipe``     ``DecaySketch``                ``SketchParams``
integral  2     ``IntegralRecipe``  ``IntegralDecaySketch``        ``SketchParams`` and a decay
sum       3     ``SumRecipe``       ``asyncwindow.SumSampler``     ``SumParams``
median    4     ``MedianRecipe``    ``asyncwindow.MedianSampler``  ``MedianParams``
========  ====  ==================  =============================  ============================

A new family is a new recipe in :data:`FAMILIES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from decaysketch import asyncwindow, retained, wire
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.asyncwindow import retained as elements
from decaysketch.asyncwindow.params import AsyncParams
from decaysketch.decay import integral
from decaysketch.decay.integral import IntegralDecay
from decaysketch.decay.read import fields_of
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError
from decaysketch.integral import rows
from decaysketch.integral.sketch import IntegralDecaySketch
from decaysketch.integral.state import spec_of
from decaysketch.params import SketchParams
from decaysketch.sketch import DecaySketch
from decaysketch.wire import asyncwindow as wire_asyncwindow
from decaysketch.wire import integral as wire_integral
from decaysketch.wire._fields import family_number

__all__ = [
    "FAMILIES",
    "DecayRecipe",
    "Head",
    "IntegralRecipe",
    "MedianRecipe",
    "Params",
    "Recipe",
    "Sketch",
    "SumRecipe",
    "decode",
    "family_of",
    "merge",
    "normal_form",
    "peek",
    "recipe_from_dict",
    "recipe_of",
    "release_scratch",
]

Params = SketchParams | SumParams | MedianParams
Sketch = DecaySketch | IntegralDecaySketch | SumSampler | MedianSampler
Blob = bytes | bytearray | memoryview
S = TypeVar("S", bound=Sketch)


@dataclass(frozen=True, slots=True)
class Head:
    """What a reader knows of a sketch before it decodes a row: what it would take.

    Attributes:
        family: name of the kind of sketch.
        capacity: rows kept for each level.
        rows: of each copy, in order.
    """

    family: str
    capacity: int
    rows: tuple[int, ...]

    @property
    def total(self) -> int:
        """Rows of all copies together."""
        return sum(self.rows)


class Recipe(ABC, Generic[S]):
    """What all sketches of one stream share; :func:`recipe_of` makes one. A value; picklable.

    Attributes:
        family: name of the kind of sketch, a key of :data:`FAMILIES`.
        number: its byte on the wire.
        sketch_type: class of the sketches.
        params_type: class of their parameters.
        params: their parameters.
    """

    family: ClassVar[str]
    number: ClassVar[int]
    sketch_type: ClassVar[type[Any]]
    params_type: ClassVar[type[Any]]

    params: Any

    @abstractmethod
    def empty(self, now: int | None = None) -> S:
        """A sketch that has seen nothing, told the time ``now`` where that is given.

        Raises:
            ParameterError: the parameters do not suit the family, or ``now`` is no time or given to
                a sketch without a clock.
        """

    @abstractmethod
    def decode(self, blob: Blob) -> S:
        """Read a sketch of this stream; nothing in the bytes is trusted.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sketch of another stream, or of another family.
        """

    @classmethod
    @abstractmethod
    def read(
        cls, blob: Blob, *, params: Any, decay: IntegralDecay | None, id_key: bytes | None
    ) -> S:
        """Read a sketch of this family; see :func:`decode`."""

    @classmethod
    @abstractmethod
    def peek(cls, blob: Blob) -> Head:
        """The head of a sketch of this family; see :func:`peek`."""

    @classmethod
    @abstractmethod
    def merge(cls, sketches: Sequence[S]) -> S:
        """Merge one or more sketches of this family; none of them is changed."""

    @classmethod
    @abstractmethod
    def parse(
        cls, form: Mapping[str, Any], *, id_key: bytes | None, table: IntegralDecay | None
    ) -> Self:
        """A recipe of this family from its JSON form; see :func:`recipe_from_dict`."""

    def differences(self, other: Recipe[Any]) -> dict[str, tuple[Any, Any]]:
        """All that must agree for a merge and does not, as ``{name: (ours, theirs)}``."""
        if self.family != other.family:
            return {"family": (self.family, other.family)}
        differences: dict[str, tuple[Any, Any]] = self.params.differences(other.params)
        return differences

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; see :func:`recipe_from_dict`. Secrets and tables are not in it."""
        return {"family": self.family, "params": self.params.to_dict()}

    def _check_family(self, blob: Blob) -> None:
        found = family_of(blob)
        if found != self.family:
            raise IncompatibleSketchError({"family": (self.family, found)})


@dataclass(frozen=True)
class DecayRecipe(Recipe[DecaySketch]):
    """Sketches whose decay is chosen at query time."""

    family = "decay"
    number = wire.FAMILY
    sketch_type = DecaySketch
    params_type = SketchParams

    params: SketchParams

    def empty(self, now: int | None = None) -> DecaySketch:
        if now is not None:
            raise ParameterError(f"now is {now!r}; expected None: a DecaySketch has no clock")
        return DecaySketch(self.params)

    def decode(self, blob: Blob) -> DecaySketch:
        self._check_family(blob)
        return DecaySketch.from_bytes(blob, params=self.params)

    @classmethod
    def read(
        cls, blob: Blob, *, params: Any, decay: IntegralDecay | None, id_key: bytes | None
    ) -> DecaySketch:
        _refuse_decay(decay)
        return DecaySketch.from_bytes(blob, params=params, id_key=id_key)

    @classmethod
    def peek(cls, blob: Blob) -> Head:
        header = wire.peek(blob)
        return Head(cls.family, header.capacity, tuple(copy.rows for copy in header.copies))

    @classmethod
    def merge(cls, sketches: Sequence[DecaySketch]) -> DecaySketch:
        return DecaySketch.merged(sketches)

    @classmethod
    def parse(
        cls, form: Mapping[str, Any], *, id_key: bytes | None, table: IntegralDecay | None
    ) -> Self:
        _take_fields(form, "params")
        return cls(SketchParams.from_dict(form["params"], id_key=id_key))


@dataclass(frozen=True)
class IntegralRecipe(Recipe[IntegralDecaySketch]):
    """Sketches of one integral decay."""

    family = "integral"
    number = wire_integral.FAMILY
    sketch_type = IntegralDecaySketch
    params_type = SketchParams

    params: SketchParams
    decay: IntegralDecay

    def empty(self, now: int | None = None) -> IntegralDecaySketch:
        sketch = IntegralDecaySketch(self.params, self.decay)
        if now is not None:
            sketch.advance(now)
        return sketch

    def decode(self, blob: Blob) -> IntegralDecaySketch:
        self._check_family(blob)
        return IntegralDecaySketch.from_bytes(blob, params=self.params, decay=self.decay)

    @classmethod
    def read(
        cls, blob: Blob, *, params: Any, decay: IntegralDecay | None, id_key: bytes | None
    ) -> IntegralDecaySketch:
        return IntegralDecaySketch.from_bytes(blob, params=params, decay=decay, id_key=id_key)

    @classmethod
    def peek(cls, blob: Blob) -> Head:
        header = wire_integral.peek(blob)
        return Head(cls.family, header.capacity, (header.rows,))

    @classmethod
    def merge(cls, sketches: Sequence[IntegralDecaySketch]) -> IntegralDecaySketch:
        return IntegralDecaySketch.merged(sketches)

    @classmethod
    def parse(
        cls, form: Mapping[str, Any], *, id_key: bytes | None, table: IntegralDecay | None
    ) -> Self:
        _take_fields(form, "params", "decay")
        params = SketchParams.from_dict(form["params"], id_key=id_key)
        decay = fields_of(form["decay"], params.time_unit, fixed=True)
        return cls(params, integral.from_dict(decay, table=table))

    def differences(self, other: Recipe[Any]) -> dict[str, tuple[Any, Any]]:
        differences = super().differences(other)
        if isinstance(other, IntegralRecipe) and spec_of(self.decay) != spec_of(other.decay):
            differences["decay"] = (self.decay, other.decay)
        return differences

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "decay": self.decay.to_dict()}


class _AsyncRecipe(Recipe[S]):
    """What the recipes of both asynchronous samplers have in common."""

    def empty(self, now: int | None = None) -> S:
        sampler = self.sketch_type(self.params)
        if now is not None:
            sampler.advance(now)
        return cast(S, sampler)

    def decode(self, blob: Blob) -> S:
        self._check_family(blob)
        return cast(S, self.sketch_type.from_bytes(blob, params=self.params))

    @classmethod
    def read(
        cls, blob: Blob, *, params: Any, decay: IntegralDecay | None, id_key: bytes | None
    ) -> S:
        _refuse_decay(decay)
        if id_key is not None:
            raise IncompatibleSketchError(
                {"id_key": ("given", "none, elements are keyed by the seed")}
            )
        return cast(S, cls.sketch_type.from_bytes(blob, params=params))

    @classmethod
    def peek(cls, blob: Blob) -> Head:
        header = wire_asyncwindow.peek(blob, kind=cls.family)
        return Head(cls.family, header.params.capacity, (header.rows,))

    @classmethod
    def merge(cls, sketches: Sequence[S]) -> S:
        return cast(S, asyncwindow.merge(cast(Any, sketches)))

    @classmethod
    def parse(
        cls, form: Mapping[str, Any], *, id_key: bytes | None, table: IntegralDecay | None
    ) -> Self:
        _take_fields(form, "params")
        if id_key is not None:
            raise ParameterError(f"id_key is given; family {cls.family!r} is keyed by its seed")
        fields = {"kind": cls.family, **form["params"]}
        if fields["kind"] != cls.family:
            raise ParameterError(f"kind is {fields['kind']!r}; expected the family, {cls.family!r}")
        return cls(AsyncParams.from_dict(fields))  # type: ignore[call-arg]


@dataclass(frozen=True)
class SumRecipe(_AsyncRecipe[SumSampler]):
    """Samplers of sums over any recent window."""

    family = "sum"
    number = wire_asyncwindow.FAMILIES["sum"]
    sketch_type = SumSampler
    params_type = SumParams

    params: SumParams


@dataclass(frozen=True)
class MedianRecipe(_AsyncRecipe[MedianSampler]):
    """Samplers of quantiles over any recent window."""

    family = "median"
    number = wire_asyncwindow.FAMILIES["median"]
    sketch_type = MedianSampler
    params_type = MedianParams

    params: MedianParams


#: The recipe of each family, by name.
FAMILIES: dict[str, type[Recipe[Any]]] = {
    recipe.family: recipe for recipe in (DecayRecipe, IntegralRecipe, SumRecipe, MedianRecipe)
}
_BY_NUMBER = {recipe.number: recipe for recipe in FAMILIES.values()}
_BY_SKETCH = {recipe.sketch_type: recipe for recipe in FAMILIES.values()}


def _refuse_decay(decay: IntegralDecay | None) -> None:
    if decay is not None:
        raise IncompatibleSketchError({"decay": (decay, "none, it is chosen at query time")})


def _take_fields(form: Mapping[str, Any], *names: str) -> None:
    """Refuse a JSON form that has not exactly these fields, each an object, a decay also a text."""
    if unknown := sorted(form.keys() - {"family", *names}):
        raise ParameterError(f"unknown field {unknown[0]!r}; known are {sorted(names)}")
    for name in names:
        if not isinstance(form.get(name), (Mapping, str) if name == "decay" else Mapping):
            raise ParameterError(f"{name} is {form.get(name)!r}; expected an object of fields")


def recipe_of(built_with: Params | Recipe[Any], decay: IntegralDecay | None = None) -> Recipe[Any]:
    """The recipe that parameters stand for; a recipe stands for itself.

    Args:
        built_with: ``SketchParams`` with a decay mean an ``IntegralDecaySketch``, without one a
            ``DecaySketch``; ``SumParams`` and ``MedianParams`` mean their samplers.
        decay: an integral decay, with ``SketchParams`` only.

    Raises:
        ParameterError: anything else.
    """
    if isinstance(built_with, Recipe) and decay is None:
        return built_with
    if isinstance(built_with, SketchParams) and decay is not None:
        return IntegralRecipe(built_with, decay)
    simple: dict[type[Any], Any] = {
        SketchParams: DecayRecipe, SumParams: SumRecipe, MedianParams: MedianRecipe
    }  # fmt: skip
    if decay is not None or type(built_with) not in simple:
        raise ParameterError(
            f"no sketch is built with {built_with!r} and decay {decay!r}; expected SketchParams, "
            "SketchParams and an integral decay, SumParams or MedianParams"
        )
    recipe: Recipe[Any] = simple[type(built_with)](built_with)
    return recipe


def recipe_from_dict(
    form: Mapping[str, Any],
    *,
    id_key: bytes | None = None,
    table: IntegralDecay | None = None,
) -> Recipe[Any]:
    """Inverse of :meth:`Recipe.to_dict`.

    Args:
        form: ``{"family": ..., "params": {...}}``, for an integral decay with ``"decay"``, a
            dictionary or a text (:mod:`decaysketch.decay.read`). Without a family: "decay".
        id_key: the secret, where the parameters are keyed by one.
        table: the decay, where it is a table: the form has only its digest.

    Raises:
        ParameterError: an unknown family or field, a missing one, or one outside its domain.
    """
    family = form.get("family", DecayRecipe.family)
    if family not in FAMILIES:
        raise ParameterError(f"family is {family!r}; expected one of {', '.join(FAMILIES)}")
    return FAMILIES[family].parse(form, id_key=id_key, table=table)


def normal_form(
    form: Mapping[str, Any], *, id_key: bytes | None = None, read_decay: bool = True
) -> dict[str, Any]:
    """``recipe_from_dict(form, id_key=id_key).to_dict()``, without computing a decay.

    Whether a sketch can be built with it is not found out. The text of a decay is read, which takes
    milliseconds; ``read_decay=False`` says that it is in normal form already.

    Raises:
        ParameterError: as :func:`recipe_from_dict`, but for what only computing shows.

    Example:
        >>> normal_form({"params": {"max_weight": 9}})["params"]["id_bits"]
        40
    """
    if form.get("family") != IntegralRecipe.family:
        return recipe_from_dict(form, id_key=id_key).to_dict()
    _take_fields(form, "params", "decay")
    params = SketchParams.from_dict(form["params"], id_key=id_key)
    decay = fields_of(form["decay"], params.time_unit, fixed=True)
    if read_decay:
        decay = integral.normal_form(decay)
    return {"family": IntegralRecipe.family, "params": params.to_dict(), "decay": decay}


def family_of(blob: Blob) -> str:
    """Name of the family that bytes say they are of. O(1): nothing else of them is checked.

    Raises:
        CorruptSketchError: they are of no family of this release.
        TypeError: not bytes at all.
    """
    number = family_number(blob)
    if number not in _BY_NUMBER:
        known = ", ".join(f"{n} ({recipe.family})" for n, recipe in _BY_NUMBER.items())
        raise CorruptSketchError(f"family {number}; expected one of {known}")
    return _BY_NUMBER[number].family


def peek(blob: Blob) -> Head:
    """How many rows a sketch of whatever family says it has, before one of them is decoded.

    For refusing by size: decoded, a row takes 33 bytes and more; on the wire it may take a quarter
    of one. The frame and the checksum are verified, the header is read, and that so many rows can
    be: each takes a bit, and a level holds no more than the capacity. Whether they are there is
    known to :func:`decode`. Time O(bytes), for the checksum; constant memory.

    Raises:
        CorruptSketchError: bytes that no honest builder could have written.
        TypeError: not bytes at all.
    """
    return FAMILIES[family_of(blob)].peek(blob)


def decode(
    blob: Blob,
    *,
    params: Params | None = None,
    decay: IntegralDecay | None = None,
    id_key: bytes | None = None,
) -> Sketch:
    """Read a sketch of whatever family; nothing in the bytes is trusted.

    :meth:`Recipe.decode` reads a sketch of a stream that is known.

    Args:
        blob: what ``to_bytes`` of a sketch wrote.
        params: what the bytes are expected to carry; needed where they carry a fingerprint only.
        decay: the integral decay, where that is a table.
        id_key: the secret id key, where the bytes were built with one and ``params`` is None.

    Raises:
        CorruptSketchError: bytes that no honest builder could have written.
        IncompatibleSketchError: a sketch of other parameters, or one of the three is needed and was
            not given, or given and has no use.
    """
    recipe = FAMILIES[family_of(blob)]
    if params is not None and not isinstance(params, recipe.params_type):
        raise IncompatibleSketchError(
            {"params": (type(params).__name__, f"{recipe.params_type.__name__} ({recipe.family})")}
        )
    sketch: Sketch = recipe.read(blob, params=params, decay=decay, id_key=id_key)
    return sketch


def merge(sketches: Iterable[S]) -> S:
    """Merge any number of sketches of one family into a new one, in one pass; none is changed.

    The result has the smallest of their capacities and, where the family has a clock, the latest
    of their clocks.

    Raises:
        IncompatibleSketchError: naming every parameter that differs, or the families.
        ParameterError: no sketch was given.
        TypeError: something that is no sketch was given.

    Complexity: O(rows of all).
    """
    given = list(sketches)
    if not given:
        raise ParameterError("expected at least one sketch to merge")
    recipes = []
    for sketch in given:
        if type(sketch) not in _BY_SKETCH:
            raise TypeError(f"cannot merge a {type(sketch).__name__}")
        recipes.append(_BY_SKETCH[type(sketch)])
    for recipe in recipes[1:]:
        if recipe is not recipes[0]:
            raise IncompatibleSketchError({"family": (recipes[0].family, recipe.family)})
    merged: S = recipes[0].merge(given)
    return merged


def release_scratch() -> None:
    """Give back the working memory that merging and compacting left to the calling thread.

    It is as large as the largest sketch that the thread has compacted, and made anew when it is
    needed. Who merges large sketches on threads that stay calls it afterwards.
    """
    for release in (retained.release_scratch, rows.release_scratch, elements.release_scratch):
        release()
