"""Calls of the batch engine, with what plain counting gives."""

from __future__ import annotations

import random
from collections.abc import Iterator

from native.recording import Call


def calls() -> Iterator[Call]:
    rng = random.Random(3)
    for n, keys in ((0, 1), (1, 1), (17, 1), (40, 5), (90, 300)):
        codes = [rng.randrange(keys) for _ in range(n)]
        masks = [[int(rng.random() < share) for _ in range(n)] for share in (0.4, 0.3, 0.2)]
        before = [rng.choice([0, 7, 1 << 40]) for _ in range(4 * keys)]
        counts = before.copy()
        for key, missing, fallback, refused in zip(codes, *masks, strict=True):
            taken = 1 - refused
            for place, one in enumerate((taken, taken * missing, taken * fallback, refused)):
                counts[4 * key + place] += one
        yield Call("count_by_key", [codes, *masks, before], [counts])
