"""``python -m quality.hostile``: what bodies that nobody's encoder wrote do to the decoder.

Sound sketches of every family are damaged at random (:mod:`quality.damage`), four times in five
under a right checksum, so that the rules behind it are reached. Each body must be refused by an
error of the library or be taken; what is taken must have bytes that read back to themselves. The
first part does this in processes of its own, by the million; the second posts some thousands to a
server. Counted are the outcomes, the slowest body and how memory grew. The status is 1 if anything
crashed, hung or came out wrong; the seed and the number of the body, which are printed, make it
again.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx2
import pyarrow as pa

from decaysketch.errors import DecaySketchError
from decaysketch.families import FAMILIES, Recipe
from quality.damage import damage, damaged, recipes, sound
from quality.serving import Server

__all__ = ["main"]

_CHUNK: Final = 20_000
_LONGEST_CHUNK_S: Final = 1800.0
_SKETCH: Final = "application/octet-stream"


@dataclass
class Tally:
    """What happened to the bodies of one run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    worst_s: float = 0.0
    worst_body: str = ""
    grown_bytes: int = 0

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.faults += other.faults
        self.grown_bytes = max(self.grown_bytes, other.grown_bytes)
        if other.worst_s > self.worst_s:
            self.worst_s, self.worst_body = other.worst_s, other.worst_body


@cache
def sound_observations() -> list[tuple[str, bytes]]:
    """``(media type, body)``: the same few observations in each form."""
    rows = [{"value": i % 7, "weight": 1 + i % 9, "time": 100 + i, "id": i} for i in range(40)]
    table = pa.Table.from_pylist(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=16)
    return [
        ("application/vnd.apache.arrow.stream", sink.getvalue().to_pybytes()),
        ("application/json", json.dumps({"observations": rows}).encode()),
        ("application/x-ndjson", b"\n".join(json.dumps(row).encode() for row in rows)),
    ]


def damaged_observations(seed: int) -> Iterator[tuple[str, bytes]]:
    """``(media type, body)`` without end; half of them Arrow streams."""
    draw, others = random.Random(seed), [body for _, body in sound()]
    while True:
        media_type, original = draw.choice(sound_observations()[:: draw.choice((1, 3))])
        body = bytearray(original)
        for _ in range(draw.choice((1, 1, 2))):
            damage(draw, body, others)
        yield media_type, bytes(body)


# ------------------------------------------------------------------------------- in this process


def _decode(recipe: Recipe, body: bytes) -> str:
    """The outcome; an AssertionError if something that is taken is not sound."""
    try:
        sketch = recipe.decode(body)
    except DecaySketchError as error:
        return type(error).__name__
    written = sketch.to_bytes()
    assert recipe.decode(written).to_bytes() == written, "it does not read back to itself"
    return "taken"


def _run(seed: int, bodies: int, names: Sequence[str] | None = None) -> Tally:
    tally = Tally()
    known = recipes()
    for recipe in known.values():
        recipe.decode(recipe.empty().to_bytes())
    before = _peak_bytes()
    for number, (name, body) in enumerate(islice(damaged(seed, names), bodies)):
        began = time.process_time()  # of this process: what others do to the machine is left out
        try:
            outcome = _decode(known[name], body)
        except Exception as error:  # whatever is not a refusal is what is looked for
            outcome = f"FAULT {type(error).__name__}"
            tally.faults.append(f"seed {seed}, body {number}, {name}: {error!r}: {body.hex()}")
        elapsed_s = time.process_time() - began
        tally.outcomes[outcome] += 1
        if elapsed_s > tally.worst_s:
            tally.worst_s = elapsed_s
            tally.worst_body = f"seed {seed}, body {number}, {name}, {len(body)} bytes"
    tally.grown_bytes = _peak_bytes() - before
    return tally


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _warm_up() -> None:
    """Whatever compiles or is loaded late, before memory and times count."""
    _run(seed=-1, bodies=500)


def decode_all(bodies: int, seed: int, processes: int, names: Sequence[str] | None = None) -> Tally:
    """Decode so many damaged bodies, of all recipes or of some; a process that dies or hangs is a
    fault.
    """
    total = Tally()
    with ProcessPoolExecutor(processes, initializer=_warm_up) as pool:
        sizes = [min(_CHUNK, bodies - at) for at in range(0, bodies, _CHUNK)]
        chunks = {
            pool.submit(_run, seed + i, size, names): seed + i for i, size in enumerate(sizes)
        }
        deadline_s = _LONGEST_CHUNK_S * max(1, len(chunks) // processes + 1)
        try:
            for chunk in as_completed(chunks, timeout=deadline_s):
                if error := chunk.exception():
                    total.faults.append(f"seed {chunks[chunk]}: {error!r}")
                else:
                    total.add(chunk.result())
        except TimeoutError:
            hung = [chunks[chunk] for chunk in chunks if not chunk.done()]
            total.faults.append(f"seeds {hung}: not done within {deadline_s:g} s")
            for process in pool._processes.values():
                process.kill()
    return total


# ------------------------------------------------------------------------------------ over HTTP


@contextmanager
def _server(folder: Path) -> Iterator[tuple[Server, httpx2.Client]]:
    """A server over a fresh database, and a client of it."""
    data = folder / "aggregator.sqlite3"
    server = Server(folder, {"DECAYSKETCH_DATA": str(data), "DECAYSKETCH_AUTH": "off"})
    try:
        server.start()
        with httpx2.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            yield server, client
    finally:
        server.kill()


def post_all(bodies: int, seed: int) -> Tally:
    """Post so many damaged bodies to a server, every other one observations; anything but an answer
    below 500 is a fault."""
    tally = Tally()
    with TemporaryDirectory() as folder, _server(Path(folder)) as (server, client):
        for name, recipe in recipes().items():
            created = client.put(f"/v1/streams/{name}", json=recipe.to_dict())
            if created.status_code != 201:
                raise RuntimeError(created.text)
        for name, body in sound():
            _post(client, name, "sketches", _SKETCH, body)
        for media_type, body in sound_observations():
            _post(client, "decay", "observations", media_type, body)
        sketches, observations = damaged(seed), damaged_observations(seed)
        before = server.resident_bytes()
        for number in range(bodies):
            if number % 2:
                (media_type, body), (name, kind) = next(observations), ("decay", "observations")
            else:
                (name, body), (media_type, kind) = next(sketches), (_SKETCH, "sketches")
            began = time.perf_counter()
            try:
                answer = _post(client, name, kind, media_type, body)
            except httpx2.TransportError as error:
                tally.faults.append(f"seed {seed}, body {number}, {media_type}: {error!r}")
                break
            elapsed_s = time.perf_counter() - began
            where = f"seed {seed}, body {number}, {name}, {media_type}, {len(body)} bytes"
            tally.outcomes[f"{kind}: {answer.status_code} {_kind(answer)}".strip()] += 1
            if answer.status_code >= 500:
                tally.faults.append(f"{where}: {answer.text}")
            if elapsed_s > tally.worst_s:
                tally.worst_s, tally.worst_body = elapsed_s, where
        tally.grown_bytes = server.resident_bytes() - before
        for name in recipes():
            state = client.get(f"/v1/streams/{name}/sketch")
            if state.status_code != 200:
                tally.faults.append(f"stream {name} afterwards: {state.text}")
    return tally


def _post(
    client: httpx2.Client, name: str, kind: str, media_type: str, body: bytes
) -> httpx2.Response:
    return client.post(
        f"/v1/streams/{name}/{kind}",
        params={"source": "hostile"},
        content=body,
        headers={"content-type": media_type},
    )


def _kind(answer: httpx2.Response) -> str:
    if answer.status_code == 200:
        return ""
    kind: str = answer.json()["type"]
    return kind.rpartition(":")[2]


# ---------------------------------------------------------------------------------------- command


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.hostile", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--bodies", type=int, default=100_000, help="decoded in processes")
    parser.add_argument("--posts", type=int, default=2000, help="posted to a server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--family", choices=FAMILIES, help="decoded alone (all)")
    parser.add_argument("--only", nargs="+", choices=recipes(), help="streams decoded alone (all)")
    options = parser.parse_args(arguments)
    faults, names = 0, None
    if options.family is not None:
        names = [name for name, recipe in recipes().items() if recipe.family == options.family]
    names = options.only or names
    for title, bodies, run in (
        ("decoder", options.bodies, partial(decode_all, processes=options.processes, names=names)),
        ("server", options.posts, post_all),
    ):
        if bodies == 0:
            continue
        began = time.perf_counter()
        tally = run(bodies, seed=options.seed)
        _report(title, bodies, time.perf_counter() - began, tally)
        faults += len(tally.faults)
    return 1 if faults else 0


def _report(title: str, bodies: int, elapsed_s: float, tally: Tally) -> None:
    print(f"{title}: {bodies} bodies in {elapsed_s:.1f} s")
    for outcome, count in tally.outcomes.most_common():
        print(f"  {count:>9}  {outcome}")
    print(f"  slowest: {1000 * tally.worst_s:.1f} ms ({tally.worst_body})")
    print(f"  memory grew by {tally.grown_bytes / (1 << 20):.1f} MiB")
    for fault in tally.faults[:20]:
        print(f"  FAULT {fault}")


if __name__ == "__main__":
    sys.exit(main())
