"""No request waits for a compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from service import NOW, PARAMS

from decaysketch import DecaySketch

PROGRAM = """
import json, sys
from fastapi.testclient import TestClient
from numba.core.dispatcher import Dispatcher
from api.app import create_app
from api.settings import Settings

def compiled():
    return {
        f"{name}.{each}": len(kernel.signatures)
        for name, module in list(sys.modules.items())
        if name.startswith("decaysketch")
        for each, kernel in vars(module).items()
        if isinstance(kernel, Dispatcher)
    }

data, body, params, rows, queries = sys.argv[1], open(sys.argv[2], "rb").read(), *map(
    json.loads, sys.argv[3:]
)
octets = {"content-type": "application/octet-stream"}
with TestClient(create_app(Settings(data=data)), base_url="http://localhost") as client:
    before = compiled()
    client.put("/v1/streams/s", json={"params": params}).raise_for_status()
    for source in "abab":
        to = f"/v1/streams/s/%s?source={source}"
        client.post(to % "sketches", content=body, headers=octets).raise_for_status()
        client.post(to % "observations", json={"observations": rows}).raise_for_status()
        asked = client.post("/v1/streams/s/query", json={"queries": queries})
        assert asked.status_code == 200, asked.text
print(*(name for name, count in compiled().items() if count != before.get(name, 0)))
"""


def test_no_request_compiles_anything(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    sketch = DecaySketch(PARAMS)
    sketch.update(
        draw.normal(20, 5, 4_000), draw.integers(1, 100, 4_000),
        NOW - draw.integers(0, 5_000, 4_000), draw.integers(0, 1 << 40, 4_000),
    )  # fmt: skip
    assert len(sketch) > 600  # with as many distinct values
    body = tmp_path / "body"
    body.write_bytes(sketch.to_bytes())
    rows = [{"value": 1.5 * k, "weight": 1, "time": NOW - k, "id": k} for k in range(100)]
    queries = [
        {"decay": {"kind": "exponential", "half_life": 900}, "now": NOW, **asked}
        for asked in (
            {"aggregate": "sum"},
            {"aggregate": "mean"},
            {"aggregate": "group_by"},
            {"aggregate": "quantile", "q": [0.1, 0.5]},
            {"aggregate": "rank", "v": 20},
            {"aggregate": "heavy_hitters", "phi": 0.01},
            {"aggregate": "selectivity", "predicate": "v > 20 and w < 50"},
        )
    ]
    given = [json.dumps(each) for each in (PARAMS.to_dict(), rows, queries)]
    done = subprocess.run(  # a process of its own: this one has compiled much
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data.sqlite3"), str(body), *given],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
