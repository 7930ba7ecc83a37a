"""Sketches to post to an aggregator, and what is asked of its answers everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from httpx2 import Response

from decaysketch import DecaySketch, SketchParams

PARAMS = SketchParams(
    max_weight=99, id_bits=40, capacity=200, seed=2**63 + 11, time_unit="s", value_type="float64"
)
NOW = 100_000
OCTETS = {"content-type": "application/octet-stream"}
LOCAL = "http://localhost"  # the only name that a server which asks for no key answers to


def build(
    seed: int, rows: int = 400, *, params: SketchParams = PARAMS, first_id: int = 0
) -> DecaySketch:
    """A sketch of some observations: few distinct values, some missing, times up to NOW."""
    draw = np.random.default_rng(seed)
    sketch = DecaySketch(params)
    sketch.update(
        np.ma.masked_array(np.round(draw.normal(20, 5, rows)), mask=draw.random(rows) < 0.05),
        draw.integers(1, params.max_weight + 1, rows),
        draw.integers(NOW - 5_000, NOW + 1, rows),
        first_id + np.arange(rows),
    )
    return sketch


def posted(response: Response) -> dict[str, Any]:
    """What was said to the one sketch of a post that was taken."""
    assert response.status_code == 200, response.text
    (sketch,) = response.json()["sketches"]
    held: dict[str, Any] = sketch
    return held


def problem(response: Response, status: int, kind: str | None = None) -> dict[str, Any]:
    """The problem in a refusal, once its form is seen to be right."""
    content: dict[str, Any] = response.json()
    assert response.status_code == status, content
    assert response.headers["content-type"] == "application/problem+json"
    assert content["status"] == status
    assert content["title"]
    assert content["detail"]
    assert "Traceback" not in response.text
    assert content["type"] == (f"urn:decaysketch:problem:{kind}" if kind else "about:blank")
    return content
