"""Bytes that no encoder wrote, of every family and variant: refused, or the bytes of another state.

Never a crash, never two forms of one state. Nearly all carry a right checksum, so that what is
tested is the checks behind it. What a single field may say is tested with the family's format.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch import families
from decaysketch.families import Recipe
from quality.damage import cuts, damaged, flips, recipes, sealed
from quality.examples import EXAMPLES, Example, feed, forms, stream, variants

_OPTIONAL_FLAGS = 7  # offset
SEARCH = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
VARIANTS = [
    pytest.param(example, recipe, id="-".join(filter(None, (family, name))))
    for family, example in EXAMPLES.items()
    for name, recipe in variants(example).items()
]


def small(example: Example, recipe: Recipe) -> list[bytes]:
    """The forms of a sketch with watermarks and a clock, and of one with floats of all bits."""
    floats = example.value is not None and recipe.params.value_type == "float64"
    found = []
    for rows, last in ((18, 12345.678), (4, 1e300))[: 1 + floats]:
        observed = stream(example, recipe, rows)
        if floats:
            observed[-1] = observed[-1]._replace(value=last)
        found += forms(feed(recipe.empty(), example, recipe, observed, told=[90] * example.clock))
    return found


def canonical_or_refused(blob: bytes, decode: Callable[[bytes], Any]) -> bool:
    """Whether the bytes decode; if they do, they are the bytes of their state."""
    try:
        sketch = decode(blob)
    except (ds.CorruptSketchError, ds.IncompatibleSketchError):
        return False
    if blob[_OPTIONAL_FLAGS]:  # skipped sections lie between the columns and the checksum
        heads = [form[:_OPTIONAL_FLAGS] + blob[7:8] + form[8:-4] for form in forms(sketch)]
        assert any(blob.startswith(head) for head in heads)
    else:
        assert blob in forms(sketch)
    return True


def reader(blob: bytes, recipe: Recipe) -> Callable[[bytes], Any]:
    """Who knows nothing of the stream reads what says all; who knows the recipe, anything else."""
    try:
        families.decode(blob)
    except ds.IncompatibleSketchError:
        return recipe.decode
    return families.decode


@pytest.mark.parametrize(("example", "recipe"), VARIANTS)
class TestEveryVariant:
    def test_every_truncation_is_refused(self, example: Example, recipe: Recipe) -> None:
        for blob in small(example, recipe):
            for shorter in cuts(blob):
                with pytest.raises(ds.CorruptSketchError):
                    recipe.decode(shorter)
                if blob.startswith(shorter):  # or its header may be whole
                    with pytest.raises(ds.CorruptSketchError):
                        families.peek(shorter)

    def test_single_bits(self, example: Example, recipe: Recipe) -> None:
        """One in 17, so that the place in the byte changes. All take 2 seconds per variant."""
        self.change_bits(example, recipe, 17)

    def test_every_single_bit(self, example: Example, recipe: Recipe) -> None:
        self.change_bits(example, recipe, 1)

    def change_bits(self, example: Example, recipe: Recipe, step: int) -> None:
        for blob in small(example, recipe):
            decode = reader(blob, recipe)
            for changed in islice(flips(blob), 0, None, step):
                with pytest.raises(ds.CorruptSketchError):  # seen by the checksum
                    families.peek(changed[:-4] + blob[-4:])
                canonical_or_refused(changed, decode)

    def test_bytes_left_over_are_refused(self, example: Example, recipe: Recipe) -> None:
        blob = small(example, recipe)[0]
        for extra in (b"\0", b"\0" * 8, b"\x01more"):
            for longer in (sealed(blob[:-4] + extra), blob + extra):
                with pytest.raises(ds.CorruptSketchError, match=f"{len(extra)} bytes|checksum"):
                    recipe.decode(longer)

    def test_what_is_no_bytes_is_a_type_error(self, example: Example, recipe: Recipe) -> None:
        for thing in ("text", 7, None, [1, 2]):
            with pytest.raises(TypeError, match=type(thing).__name__):
                recipe.decode(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", EXAMPLES)
@SEARCH
@given(noise=st.binary(max_size=200), kept=st.integers(0, 60))
def test_random_bytes_behind_a_right_beginning(family: str, noise: bytes, kept: int) -> None:
    example = EXAMPLES[family]
    blob = small(example, example.recipe)[0]
    canonical_or_refused(sealed(blob[:kept] + noise), example.recipe.decode)


@pytest.mark.parametrize("name", recipes())
def test_what_was_damaged_is_refused_or_canonical(name: str) -> None:
    """Some thousands of the bodies that ``quality.hostile`` makes by the million."""
    recipe = recipes()[name]
    bodies = [body for _, body in islice(damaged(20_090_401, [name]), 500)]
    taken = [
        canonical_or_refused(body, recipe.decode) for body in bodies if len(body) > _OPTIONAL_FLAGS
    ]
    assert 0 < sum(taken) < len(taken)
