"""Streams under decays that take a loss and cap the rest, with weights up to 10^6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from service import OCTETS

import decaysketch as ds
from decaysketch.decay import integral

TOP = 1_000_000
PARAMS = {"max_weight": TOP, "id_bits": 20, "capacity": 500, "value_type": "int64"}


def created(client: TestClient, name: str, text: str) -> Any:
    decay = {"kind": "expression", "text": text, "max_weight": TOP}
    form = {"family": "integral", "params": PARAMS, "decay": decay}
    return client.put(f"/v1/streams/{name}", json=form)


@pytest.mark.parametrize("text", ["max(w - x, 0)", "min(w, floor(600/(1 + x)))"])
def test_weights_of_a_million(client: TestClient, text: str) -> None:
    assert created(client, "s", text).status_code == 201
    decay = integral.expression(text, max_weight=TOP)
    sketch = ds.IntegralDecaySketch(ds.SketchParams(**PARAMS), decay)
    rng = np.random.default_rng(3)
    weights, times = rng.integers(1, TOP + 1, 200), rng.integers(0, 300, 200)
    sketch.update(np.zeros(200, np.int64), weights, times, np.arange(200))
    posted = client.post(
        "/v1/streams/s/sketches", params={"source": "a"}, content=sketch.to_bytes(), headers=OCTETS
    )
    assert posted.status_code == 200
    asked = {"queries": [{"aggregate": "sum", "now": 300}]}
    (answer,) = client.post("/v1/streams/s/query", json=asked).json()["answers"]
    assert answer["estimate"]["exact"]
    assert answer["estimate"]["value"] == decay(weights, 300 - times).sum() > 0


def test_texts_that_take_too_long_are_refused(client: TestClient) -> None:
    refused = created(client, "s", "floor(sqrt(w)/(1 + x))")
    assert refused.status_code == 422
    assert "operations" in refused.text
