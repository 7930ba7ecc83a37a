"""The other processes: the Spark job, the program that posts, and the aggregator that answers.

The demonstration talks to them as any customer would: command lines and HTTP.
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx2
from rich.markup import escape

from decaysketch import DecaySketchError, SketchParams, __version__
from decaysketch.spark.tables import SketchTable
from demo.questions import QUANTILES, Cell
from demo.scores import Reading

__all__ = [
    "Aggregator",
    "ProgramFailedError",
    "build_with_spark",
    "hitters",
    "publish",
    "readings",
    "running_aggregator",
]

STREAM: Final = "deliveries"
PROJECT: Final = Path(__file__).resolve().parent.parent
TELL_EVERY_S: Final = 5.0
ANSWER_LIMIT_S: Final = 900.0  # for programs that hang: slow ones need less


class ProgramFailedError(Exception):
    """A program of the project failed. The message ends with its output."""


def build_with_spark(log: Path, out: Path, params: SketchParams, *, weighted: bool) -> bool:
    """Build one sketch per gateway by ``spark_jobs.build``, with its progress on stderr. It uses
    the sketches of an earlier run if log and settings are the same. Return whether any were built.
    """
    out.mkdir(parents=True, exist_ok=True)
    params_path = out / "params.json"
    params_path.write_text(json.dumps(params.to_dict(), indent=2) + "\n")
    arguments = ["--by", "path", "--id-columns", "source,msg", "--params", str(params_path)]
    arguments += ["--weight-column", "weight"] if weighted else []
    command = ["spark_jobs.build", str(log), "--out", str(out / "sketches"), "--overwrite"]
    of = _made_of(log, [arguments, params.to_dict()])
    record = out / "sketches-of.json"
    if _is_kept(out / "sketches", record, of):
        return False
    record.unlink(missing_ok=True)
    _run([*command, *arguments], show=True)
    record.write_text(json.dumps(of, indent=2) + "\n")
    return True


def _made_of(log: Path, settings: object) -> dict[str, Any]:
    """The input of the sketches. Equal input gives equal sketches, byte for byte."""
    with log.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"log_sha256": digest, "settings": settings, "decaysketch": __version__}


def _is_kept(sketches: Path, record: Path, of: dict[str, Any]) -> bool:
    """Whether all sketches of this are there, and can be read."""
    with suppress(OSError, ValueError, DecaySketchError):
        if json.loads(record.read_text()) == of:
            return bool(list(SketchTable.open(sketches).sketches()))
    return False


def publish(sketches: Path, url: str) -> None:
    """Create the stream and post a folder of sketches, by ``spark_jobs.publish``."""
    command = ["spark_jobs.publish", str(sketches), "--url", url, "--stream", STREAM]
    _run([*command, "--timeout-s", f"{ANSWER_LIMIT_S:g}"], show=False)


def _run(module: Sequence[str], *, show: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *module],
        cwd=PROJECT,
        stdout=None if show else subprocess.PIPE,
        stderr=None if show else subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProgramFailedError(
            f"python -m {module[0]} ended with status {done.returncode}\n{done.stdout or ''}"
        )


@contextmanager
def running_aggregator(
    folder: Path, tell: Callable[[str], None] = lambda line: None, more: Sequence[str] = ()
) -> Iterator[Aggregator]:
    """A freshly started aggregator with an empty journal, stopped at the end.

    Args:
        folder: for its journal and its output.
        tell: called every few seconds during the start, with the present step.
        more: options of its command line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("journal.sqlite3*"):
        old.unlink()
    port = _free_port()
    options = ["--port", str(port), "--data", str(folder / "journal.sqlite3")]
    options += ["--log-format", "text", *more]
    printed = folder / "aggregator.log"
    with printed.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "api", *options],
            cwd=PROJECT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            with httpx2.Client(base_url=url, timeout=ANSWER_LIMIT_S, trust_env=False) as client:
                _wait_until_it_answers(client, process, printed, tell)
                yield Aggregator(client)
        except (ProgramFailedError, httpx2.TransportError) as fault:
            raise ProgramFailedError(
                f"{str(fault) or type(fault).__name__}\n"
                f"What was built is kept in {folder}: the same command once more goes on from "
                f"there. The aggregator's log is {printed}"
            ) from fault
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_it_answers(
    client: httpx2.Client,
    process: subprocess.Popen[bytes],
    printed: Path,
    tell: Callable[[str], None],
) -> None:
    """For as long as it lives: where many things run, it may take minutes to read its log."""
    started = told = time.monotonic()
    while process.poll() is None:
        with suppress(httpx2.TransportError):
            if client.get("/healthz", timeout=5.0).is_success:
                return
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            line = escape(_last_line(printed))
            tell(f"  the aggregator starts, {told - started:.0f} s: {line}")
        time.sleep(0.1)
    raise ProgramFailedError(
        f"python -m api ended with status {process.returncode} before it served\n"
        f"{printed.read_text()}"
    )


def _last_line(printed: Path) -> str:
    lines = printed.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "it is being loaded"


class Aggregator:
    """The aggregator's HTTP face, as far as the demonstration needs it."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    @property
    def url(self) -> str:
        return str(self._client.base_url)

    def post(self, source: str, blob: bytes) -> bool:
        """Post a sketch; whether the journal did not hold it yet. Where the connection was closed
        since the last one, as by a server that had nothing to do, it is posted by another: a sketch
        that comes twice changes nothing."""
        try:
            response = self._post(source, blob)
        except httpx2.RemoteProtocolError:
            response = self._post(source, blob)
        (posted,) = _checked(response).json()["sketches"]
        return not posted["duplicate"]

    def _post(self, source: str, blob: bytes) -> httpx2.Response:
        return self._client.post(
            f"/v1/streams/{STREAM}/sketches",
            params={"source": source},
            content=blob,
            headers={"Content-Type": "application/octet-stream"},
        )

    def counted(self, name: str) -> int:
        """A counter of it, of all streams."""
        lines = _checked(self._client.get("/metrics")).text.splitlines()
        found = (line for line in lines if line.startswith((f"{name}{{", f"{name} ")))
        return int(sum(float(line.rpartition(" ")[2]) for line in found))

    def merged_sketch(self) -> bytes:
        """The bytes of the merged sketch."""
        return _checked(self._client.get(f"/v1/streams/{STREAM}/sketch")).content

    def ask(self, cell: Cell, aggregates: Iterable[str]) -> bytes:
        """The raw body of the answers to all aggregates at one time under one decay."""
        return self._query([_question(cell, name) for name in aggregates])

    def heavy_hitters(self, cell: Cell, phi: float) -> bytes:
        """The raw response with the values whose decayed share exceeds ``phi``."""
        common = {"decay": cell.decay.to_json(), "now": cell.now_us}
        return self._query([{"aggregate": "heavy_hitters", "phi": phi, **common}])

    def _query(self, queries: list[dict[str, Any]]) -> bytes:
        path = f"/v1/streams/{STREAM}/query"
        return _checked(self._client.post(path, json={"queries": queries})).content


def _question(cell: Cell, aggregate: str) -> dict[str, Any]:
    common = {"decay": cell.decay.to_json(), "now": cell.now_us}
    for q in QUANTILES:
        if aggregate == f"q{q:g}":
            return {"aggregate": "quantile", "q": q, **common}
    return {"aggregate": aggregate, **common}


def readings(aggregates: Iterable[str], body: bytes) -> dict[str, Reading]:
    """The answers in a body that :meth:`Aggregator.ask` got for these aggregates."""
    answers = json.loads(body)["answers"]
    found = {}
    for name, answer in zip(aggregates, answers, strict=True):
        estimate = answer["quantiles"][0]["estimate"] if "quantiles" in answer else None
        found[name] = _reading(estimate or answer["estimate"])
    return found


def hitters(body: bytes) -> list[tuple[float, Reading]]:
    """Value and share of each heavy hitter in a body that :meth:`Aggregator.heavy_hitters` got."""
    [answer] = json.loads(body)["answers"]
    return [(each["value"], _reading(each["frequency"])) for each in answer["heavy_hitters"]]


def _reading(estimate: dict[str, Any]) -> Reading:
    """JSON has no infinity and no nan: an absent bound is an infinite one."""
    value, lower, upper = (estimate[name] for name in ("value", "lower", "upper"))
    return Reading(
        value=float("nan") if value is None else float(value),
        lower=float("-inf") if lower is None else float(lower),
        upper=float("inf") if upper is None else float(upper),
        exact=bool(estimate["exact"]),
    )


def _checked(response: httpx2.Response) -> httpx2.Response:
    if not response.is_success:
        raise ProgramFailedError(
            f"{response.request.method} {response.request.url} was answered with "
            f"{response.status_code}: {response.text}"
        )
    return response
