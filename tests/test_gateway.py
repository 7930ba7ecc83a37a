"""What a gateway has: NumPy, the library and httpx2, and neither SciPy nor SymPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import special

from decaysketch.core.special import binomial_at_most

ROOT = Path(__file__).resolve().parent.parent

# None in the place of a module is what Python takes for one that cannot be found.
WITHOUT = "import sys\nsys.modules.update(scipy=None, sympy=None)\n"

BUILT = """
import numpy as np
import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler

params = ds.SketchParams(max_weight=9, id_bits=40, capacity=100, seed=7, time_unit="s")
rows = np.arange(3000)
fixed = ds.decay.integral.exponential(half_life=900)
one = ds.DecaySketch(params)
two = ds.IntegralDecaySketch(params, fixed)
for sketch in (one, two):
    sketch.update(rows / 8, 1 + rows % 9, rows // 7, rows)
three = SumSampler(SumParams(max_sum=1 << 40, capacity=100))
three.update(1 + rows % 9, rows // 7, rows, source="a")
four = MedianSampler(MedianParams(max_count=1 << 40, capacity=100))
four.update(rows / 8, rows // 7, rows, source="a")
sketches = [one, two, three, four]
"""

DELIVERED = """
import httpx2, json
from decaysketch.client import Sensor

stream = {"name": "s", "family": "decay", "params": params.to_dict(), "decay": None, "rows": 0}
taken = {"stream": "s", "source": "a", "token": "s:1:1", "sketches": [{"rows": 9}]}

def answer(request):
    if request.method == "POST":
        print(len(ds.decode(request.read())))
    fields = taken if request.method == "POST" else stream
    return httpx2.Response(200, stream=httpx2.ByteStream(json.dumps(fields).encode()))

transport = httpx2.MockTransport(answer)
with Sensor("http://there", "s", "a", spool="spool", transport=transport) as sensor:
    sensor.update(rows / 8, 1 + rows % 9, rows // 7, rows, durable=True)
    assert sensor.flush(60).done
print(len(one))
"""


def run(program: str, *, folder: Path = ROOT) -> str:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sketches_are_built_merged_encoded_and_read() -> None:
    # The bytes have full levels, whose watermarks are doubted when they are read.
    program = BUILT + (
        "for sketch in sketches:\n"
        "    body = sketch.to_bytes()\n"
        "    assert (ds.decode(body) | sketch).to_bytes() == body\n"
        "    print(body.hex())\n"
    )
    assert run(WITHOUT + program) == run(program)


def test_a_sensor_brings_what_it_is_given(tmp_path: Path) -> None:
    program = BUILT + DELIVERED
    posted, held = run(WITHOUT + program, folder=tmp_path).split()
    assert posted == held


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        ("one.mean(ds.decay.none(), now=500)", "scipy"),
        ("ds.SketchParams.for_accuracy(0.05, 0.05, max_weight=1, expected=10**6)", "scipy"),
        ("ds.decay.expression('1 / (1 + x)')", "sympy"),
        ("ds.decay.integral.expression('floor(w / (1 + x))')", "sympy"),
    ],
)
def test_what_needs_more_names_it(asked: str, needed: str) -> None:
    program = (
        f"try:\n    {asked}\nexcept ModuleNotFoundError as error:\n    print(error.name, error)\n"
    )
    name, _, sentence = run(WITHOUT + BUILT + program).partition(" ")
    assert name == needed
    assert f"need {needed}: pip install {needed}" in sentence


def test_importing_the_library_imports_nothing_that_is_heavy() -> None:
    heavy = {"asyncio", "email", "html", "httpx2", "pyarrow", "scipy", "ssl", "sympy", "zoneinfo"}
    heavy |= {f"decaysketch.{each}" for each in ("ecm", "extremes", "series", "sources")}
    program = f"import sys, decaysketch\nprint(sorted({heavy} & set(sys.modules)))"
    assert run(program) == "[]\n"


def test_a_build_imports_neither_pandas_nor_scipy(tmp_path: Path) -> None:
    """Their import takes longer than most builds. Rows with nanoseconds are kept without pandas."""
    columns = {"time": pa.array([1, 2, 3], pa.timestamp("ns", "UTC")), "id": [1, None, 2]}
    pq.write_table(pa.table({**columns, "value": [1.0, 2.0, 3.0]}), tmp_path / "a.parquet")
    words = ["x", "build", "a.parquet", "--out", "a.sketch", "--quarantine", "bad", "--any-time"]
    program = (
        "import sys\nfrom decaysketch.cli import main\n"
        f"sys.argv = {words}\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code)\n"
        "print(sorted({'pandas', 'scipy', 'sympy'} & set(sys.modules)))"
    )
    assert run(program, folder=tmp_path).split("\n")[-3:-1] == ["0", "[]"]
    [kept] = (tmp_path / "bad").read_text().splitlines()
    assert json.loads(kept)["record"] == {"time": 2, "id": None, "value": 2.0}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_little_memory_is_taken_to_build_and_encode() -> None:
    # Not ru_maxrss, which a process has from the one that started it. Pages of files are left
    # out: how many of them a process maps depends on what the machine has read before.
    told = (
        "\nkb = dict(line.split()[:2] for line in open('/proc/self/status') if ' kB' in line)\n"
        "print(int(kb['VmHWM:']) - int(kb['RssFile:']))"
    )
    program = BUILT + "bodies = [sketch.to_bytes() for sketch in sketches]\n"
    most_kb = int(run("import numpy" + told)) + 15_000  # NumPy: 13,000, the program: 11,000 more
    assert int(run(program + told)) < most_kb


@pytest.mark.parametrize("p", [0.0, 1e-6, 0.3, 0.5, 0.5 - 1e-12, 0.999])
def test_binomials_are_those_of_scipy(p: float) -> None:
    for n in (1, 2, 3, 10, 60, 1_000, 70_000, 1 << 20):
        below = {int(share * n * p) for share in (0.0, 0.5, 0.8, 0.9, 0.97, 0.99, 0.999, 1.0)}
        for k in sorted(below | {min(1, n - 1), n - 1}):
            if k < min(n, n * p):
                expected = float(special.bdtr(k, n, p))
                assert binomial_at_most(k, n, p) == pytest.approx(expected, rel=1e-8, abs=1e-300)
            elif k < n:
                assert binomial_at_most(k, n, p) == 1.0
                assert special.bdtr(k, n, p) >= 0.5
