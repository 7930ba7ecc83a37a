"""The family ``ecm``: recent counts per key, from sketches of several sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from decaysketch.contract.family import Blob, Family, Head, Input, Promises, SeededRecipe
from decaysketch.contract.snapshot import Snapshot
from decaysketch.core.params import Form
from decaysketch.ecm import wire
from decaysketch.ecm.collection import ECMCollection
from decaysketch.ecm.params import OPTIONS, ECMParams

__all__ = ["FAMILY", "ECMRecipe"]


@dataclass(frozen=True)
class ECMRecipe(SeededRecipe):
    """Collections with the newest source states."""

    family = "ecm"
    hashed = "keys are hashed"
    sketch_type = ECMCollection
    params_type = ECMParams

    params: ECMParams

    @classmethod
    def params_of(cls, fields: Form) -> ECMParams:
        return ECMParams.from_dict(fields)

    def join(self, snapshots: Iterable[Snapshot]) -> Snapshot:
        merged = self.empty()
        merged.merge(*snapshots)
        return merged.snapshot()


_ENTRY_ROWS = 20  # about 500 bytes


def _peek(blob: Blob) -> Head:
    header = wire.peek(blob)
    beside = header.entries * _ENTRY_ROWS
    return Head(ECMRecipe.family, header.params.capacity, (header.kept,), beside)


FAMILY = Family(
    name=ECMRecipe.family,
    doc="the count of each key and the most frequent keys in any window, from events without ids, "
    "with guaranteed bounds.",
    number=wire.FAMILY,
    sketch=ECMCollection,
    params=ECMParams,
    recipe=ECMRecipe,
    peek=_peek,
    input=Input(
        named_by="key",
        joined=False,
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
