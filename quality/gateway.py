"""``python -m quality.gateway``: what a small device needs to bring its readings to an aggregator.

A process that may have 256 MiB of addresses, and has neither SciPy nor SymPy, feeds readings to a
:class:`decaysketch.client.Sensor` in batches and, in another run, one by one; the sensor posts them
to a server on this machine. Printed are the time and the memory of each run; Linux. Either way the
stream must end with the bytes of one sketch that was given all the readings; the status is 1 if
not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx2
import numpy as np
import numpy.typing as npt

import decaysketch as ds
from quality.serving import ROOT, Server

__all__ = ["main"]

LIMIT_BYTES: Final = 256 << 20  # of addresses: ulimit -v 262144
CHUNK: Final = 10_000  # readings that are made at a time
PARAMS: Final = ds.SketchParams(max_weight=1, id_bits=40, capacity=4_000, seed=1, time_unit="s")

# What cannot be found where only NumPy, httpx2 and the library are installed.
_SENSOR: Final = (
    "import sys; sys.modules.update(scipy=None, sympy=None)\n"
    "from quality.gateway import feed\n"
    "feed(*sys.argv[1:])"
)

Columns = tuple[npt.NDArray[np.float64], int, npt.NDArray[np.int64], npt.NDArray[np.int64]]


def readings(start: int, stop: int) -> Columns:
    """Columns of those with the numbers ``start`` to ``stop - 1``: ten a second."""
    numbers = np.arange(start, stop)
    return np.round(20 + 5 * np.sin(numbers / 5_000), 1), 1, 1_700_000_000 + numbers // 10, numbers


def feed(url: str, stream: str, spool: str, total: str, batch: str) -> None:
    """The device: gives a sensor all readings, waits until they were taken, prints what it took."""
    from decaysketch.client import Sensor

    began, rows = time.perf_counter(), int(batch)
    with Sensor(url, stream, "gateway", spool=spool, trust_env=False) as sensor:
        for start in range(0, int(total), CHUNK):
            values, weight, times, ids = readings(start, min(start + CHUNK, int(total)))
            for row in range(0, len(ids), rows):
                some = slice(row, row + rows)
                sensor.update(values[some], weight, times[some], ids[some])
        given = time.perf_counter() - began
        status = sensor.flush(600)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "done": status.done,
        "posts": status.posts,
        "given_s": given,
        "all_s": time.perf_counter() - began,
        "processor_s": usage.ru_utime + usage.ru_stime,
        "memory_mb": _peak_bytes() / 1e6,
    }
    print(json.dumps(found))


def _peak_bytes() -> int:
    """Most memory that this process had; ``ru_maxrss`` begins with that of who started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak) * 1024


def measure(server: Server, folder: Path, total: int, batch: int) -> tuple[dict[str, Any], bytes]:
    """What one device took, and the sketch that the stream ends with.

    Raises:
        RuntimeError: the device has failed; the message is the end of what it said.
    """
    stream = f"batches-{batch}"
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        form = {"params": PARAMS.to_dict()}
        http.put(f"/v1/streams/{stream}", json=form).raise_for_status()
        done = subprocess.run(
            [sys.executable, "-c", _SENSOR,
             server.url, stream, str(folder / stream), str(total), str(batch)],
            cwd=ROOT, capture_output=True, text=True, check=False,
            # OpenBLAS takes 32 MB of addresses for each processor, and is not used.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=_limit,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the device ended with {done.returncode}: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found, http.get(f"/v1/streams/{stream}/sketch").raise_for_status().content


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.gateway", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--readings", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1_000, 1], help="their sizes")
    options = parser.parse_args(arguments)
    whole = ds.DecaySketch(PARAMS)
    for start in range(0, options.readings, CHUNK):
        whole.update(*readings(start, min(start + CHUNK, options.readings)))
    expected, faults = whole.to_bytes(), 0
    print(f"{options.readings} readings; {LIMIT_BYTES >> 20} MiB of addresses, {len(expected)} B")
    print("  batch  given s  posted s  processor us each  memory MB  posts  bytes")
    with TemporaryDirectory() as name:
        folder = Path(name)
        data = {"DECAYSKETCH_DATA": str(folder / "data.sqlite3"), "DECAYSKETCH_AUTH": "off"}
        server = Server(folder, data)
        server.start()
        try:
            for batch in options.batches:
                found, held = measure(server, folder, options.readings, batch)
                right = found["done"] and held == expected
                faults += not right
                each_us = 1e6 * found["processor_s"] / options.readings
                print(
                    f"{batch:>7}  {found['given_s']:>7.1f}  {found['all_s']:>8.1f}"
                    f"  {each_us:>17.2f}  {found['memory_mb']:>9.1f}  {found['posts']:>5}"
                    f"  {'as built at once' if right else 'WRONG'}"
                )
        finally:
            server.kill()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
