"""One interface for every sketch family: create, read from bytes, and merge without its name.

Programs that move sketches (batch jobs, an aggregator) store recipes and bytes, and need no case
for each family. :mod:`decaysketch.contract.family` defines the parts that a family provides.

========  ====  ==================  =============================  ============================
family    byte  recipe              sketch                         built with
========  ====  ==================  =============================  ============================
decay     1     ``DecayRecipe``     ``DecaySketch``                ``SketchParams``
integral  2     ``IntegralRecipe``  ``IntegralDecaySketch``        ``SketchParams`` and a decay
sum       3     ``SumRecipe``       ``asyncwindow.SumSampler``     ``SumParams``
median    4     ``MedianRecipe``    ``asyncwindow.MedianSampler``  ``MedianParams``
ecm       5     ``ECMRecipe``       ``ecm.ECMCollection``          ``ECMParams``
extremes  6     ``ExtremesRecipe``  ``extremes.ExtremesSketch``    ``ExtremesParams``
series    7     ``SeriesRecipe``    ``series.SeriesSketch``        ``SeriesParams``
========  ====  ==================  =============================  ============================

A new family is a new folder, and its declaration below.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from decaysketch.asyncwindow.family import MedianRecipe, SumRecipe
from decaysketch.contract.family import FAMILIES, Blob, Family, Head, Recipe, family_of
from decaysketch.contract.sketch import Sketch
from decaysketch.core.params import BuildParams, Form
from decaysketch.decay.integral import IntegralDecay
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.integral.family import IntegralRecipe
from decaysketch.querytime.family import DecayRecipe

if TYPE_CHECKING:
    from decaysketch.ecm.family import ECMRecipe
    from decaysketch.extremes.family import ExtremesRecipe
    from decaysketch.series.family import SeriesRecipe

__all__ = [
    "DEFAULT",
    "FAMILIES",
    "BuiltWith",
    "DecayRecipe",
    "ECMRecipe",
    "ExtremesRecipe",
    "Family",
    "Head",
    "IntegralRecipe",
    "MedianRecipe",
    "Params",
    "Recipe",
    "SeriesRecipe",
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

S = TypeVar("S", bound=Sketch)

Params = BuildParams
"""Parameters of any family."""

BuiltWith = Params | Recipe
"""What says of which kind a sketch is to be; see :func:`recipe_of`."""

FAMILIES.declare("decay", 1, "decaysketch.querytime.family")
FAMILIES.declare("integral", 2, "decaysketch.integral.family")
FAMILIES.declare("sum", 3, "decaysketch.asyncwindow.family", "SUM")
FAMILIES.declare("median", 4, "decaysketch.asyncwindow.family", "MEDIAN")
FAMILIES.declare("ecm", 5, "decaysketch.ecm.family")
FAMILIES.declare("extremes", 6, "decaysketch.extremes.family")
FAMILIES.declare("series", 7, "decaysketch.series.family")

_LATER = {"ECMRecipe": "ecm", "ExtremesRecipe": "extremes", "SeriesRecipe": "series"}

#: Name of the family that is meant where none is named.
DEFAULT = "decay"


if not TYPE_CHECKING:  # else every name would be known

    def __getattr__(name: str) -> Any:
        """Return a recipe. Its family is imported at first use."""
        if name in _LATER:
            return FAMILIES[_LATER[name]].recipe
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def recipe_of(built_with: object, decay: IntegralDecay | None = None) -> Recipe:
    """Return the recipe for parameters, or of a sketch. A recipe is returned unchanged.

    Args:
        built_with: parameters of a family. ``SketchParams`` with a decay mean an
            ``IntegralDecaySketch``, without one a ``DecaySketch``. Or a recipe, or a sketch.
        decay: an integral decay, with ``SketchParams`` only.

    Raises:
        ParameterError: anything else.
    """
    if isinstance(built_with, Recipe) and decay is None:
        return built_with
    for family in FAMILIES.loaded_first():
        if type(built_with) is family.sketch and decay is None:
            return family.recipe.of(built_with)
        recipe = family.recipe.built_with(built_with, decay)
        if recipe is not None:
            return recipe
    raise ParameterError(
        f"no sketch is built with {built_with!r} and decay {decay!r}; expected SketchParams, "
        "SketchParams and an integral decay, SumParams, MedianParams, ECMParams, "
        "ExtremesParams or SeriesParams"
    )


def recipe_from_dict(
    form: Form,
    *,
    id_key: bytes | None = None,
    table: IntegralDecay | None = None,
) -> Recipe:
    """Inverse of :meth:`Recipe.to_dict`.

    Args:
        form: ``{"family": ..., "params": {...}}``, for an integral decay with ``"decay"``, a
            dictionary or a text (:mod:`decaysketch.decay.read`). Without a family: "decay".
        id_key: the secret, if the parameters are keyed by one.
        table: the decay, if it is a table: the form has only its digest.

    Raises:
        ParameterError: an unknown or missing family or field, or one outside its domain.
    """
    return _named(form.get("family", DEFAULT)).recipe.parse(form, id_key=id_key, table=table)


def normal_form(
    form: Form, *, id_key: bytes | None = None, read_decay: bool = True
) -> dict[str, Any]:
    """Return ``recipe_from_dict(form, id_key=id_key).to_dict()``, without computing a decay.

    The result may still be a configuration that no sketch accepts. Parsing a decay's text takes
    milliseconds. ``read_decay=False`` skips it, for a text that is already in normal form.

    Raises:
        ParameterError: as :func:`recipe_from_dict`, except for errors that only computing shows.

    Example:
        >>> normal_form({"params": {"max_weight": 9}})["params"]["id_bits"]
        53
    """
    recipe = _named(form.get("family", DEFAULT)).recipe
    return recipe.normal_form(form, id_key=id_key, read_decay=read_decay)


def _named(name: object) -> Family:
    if not isinstance(name, str) or name not in FAMILIES:
        raise ParameterError(f"family is {name!r}; expected one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def peek(blob: Blob) -> Head:
    """Return the row count that a sketch in any family reports, before any row is decoded.

    Use it to reject by size: decoded, a row takes 33 bytes and more, and on the wire as little as a
    quarter of a byte. It verifies the frame and the checksum, reads the header, and checks that the
    row count is possible: each row takes a bit, and a level has no more rows than the capacity.
    Only :func:`decode` checks that the rows exist. Time O(bytes), for the checksum, and constant
    memory.

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
    """Read a sketch in any family. Nothing in the bytes is trusted.

    To read a sketch from a known stream, use :meth:`Recipe.decode`.

    Args:
        blob: the bytes that a sketch's ``to_bytes`` wrote.
        params: the expected parameters. Needed if the bytes contain a fingerprint only.
        decay: the integral decay, if it is a table.
        id_key: the secret id key, if the bytes were built with one and ``params`` is None.

    Raises:
        CorruptSketchError: bytes that no honest builder could have written.
        IncompatibleSketchError: a sketch with other parameters, or one of the three is needed and
            was not given, or given and has no use.
    """
    family = FAMILIES[family_of(blob)]
    if params is not None and not isinstance(params, family.params):
        raise IncompatibleSketchError(
            {"params": (type(params).__name__, f"{family.params.__name__} ({family.name})")}
        )
    return family.recipe.read(blob, params=params, decay=decay, id_key=id_key)


def merge(sketches: Iterable[S]) -> S:
    """Merge any number of sketches in one family into a new one, in one pass. None is changed.

    The result has the smallest capacity among them: one with 5 % among others with 2 % makes it 5
    %. If the family has a clock, the result has the latest clock.

    Raises:
        IncompatibleSketchError: with every parameter that differs, or the families.
        ParameterError: no sketch was given.
        TypeError: an argument is no sketch.

    Complexity: O(rows in all sketches).
    """
    given = list(sketches)
    if not given:
        raise ParameterError("expected at least one sketch to merge")
    found = [_family_of_sketch(sketch) for sketch in given]
    for family in found[1:]:
        if family is not found[0]:
            raise IncompatibleSketchError({"family": (found[0].name, family.name)})
    merged = given[0]._empty()
    merged.merge(*given)
    return merged


def _family_of_sketch(sketch: object) -> Family:
    for family in FAMILIES.loaded_first():
        if type(sketch) is family.sketch:
            return family
    raise TypeError(f"cannot merge a {type(sketch).__name__}")


def release_scratch() -> None:
    """Release the working memory that merging and compacting left to the calling thread.

    It is as large as the largest sketch that the thread has compacted, and is allocated again when
    needed. Call it after merging large sketches on long-lived threads.
    """
    for release in {family.release_scratch for family in FAMILIES.loaded}:
        release()
