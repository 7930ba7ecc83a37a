"""The family ``ecm``: how often each key came lately, by sketches of sites that are joined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from decaysketch.contract.family import Blob, Family, Head, Input, Promises
from decaysketch.contract.recipe import Own, Recipe, refuse_decay, take_fields
from decaysketch.contract.snapshot import Snapshot
from decaysketch.core.params import Form
from decaysketch.decay.integral import IntegralDecay
from decaysketch.ecm import wire
from decaysketch.ecm.collection import ECMCollection
from decaysketch.ecm.params import OPTIONS, ECMParams
from decaysketch.errors import IncompatibleSketchError, ParameterError

__all__ = ["FAMILY", "ECMRecipe"]


@dataclass(frozen=True)
class ECMRecipe(Recipe):
    """Collections of the newest states of sites."""

    family = "ecm"
    sketch_type = ECMCollection
    params_type = ECMParams

    params: ECMParams

    def empty(self, now: int | None = None) -> ECMCollection:
        collection = ECMCollection(self.params)
        if now is not None:
            collection.advance(now)
        return collection

    @classmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> ECMCollection:
        refuse_decay(decay)
        if id_key is not None:
            raise IncompatibleSketchError(
                {"id_key": ("given", "none, keys are hashed by the seed")}
            )
        return ECMCollection.from_bytes(blob, params=params)

    def join(self, snapshots: Iterable[Snapshot]) -> Snapshot:
        merged = self.empty()
        merged.merge(*snapshots)
        return merged.snapshot()

    @classmethod
    def parse(cls, form: Form, *, id_key: bytes | None, table: IntegralDecay | None) -> Self:
        take_fields(form, "params")
        if id_key is not None:
            raise ParameterError(f"id_key is given; family {cls.family!r} is keyed by its seed")
        return cls(ECMParams.from_dict(form["params"]))


_ENTRY_ROWS = 20  # about 500 bytes


def _peek(blob: Blob) -> Head:
    header = wire.peek(blob)
    beside = header.entries * _ENTRY_ROWS
    return Head(ECMRecipe.family, header.params.capacity, (header.kept,), beside)


FAMILY = Family(
    name=ECMRecipe.family,
    doc="how often each key came, and which come most, in any window: of events without ids, with "
    "ends that are sure.",
    number=wire.FAMILY,
    sketch=ECMCollection,
    params=ECMParams,
    recipe=ECMRecipe,
    peek=_peek,
    input=Input(
        named_by="key",
        value="none",
        weighted=True,
        sited=True,
        clock=True,
        decay="query",
        age_bound="horizon",
    ),
    options=OPTIONS,
    questions=ECMCollection.questions,
    promises=Promises(idempotent=True, canonical=True, lossless=False, conflicts=True),
    make_example=lambda: ECMRecipe(
        ECMParams(width=6, depth=2, slots=3, key_bits=8, fanout_bits=4, capacity=8)
    ),
    documented={"params": {"width": 60, "depth": 3, "slots": 10, "horizon": 86400, "key_bits": 32}},
)
