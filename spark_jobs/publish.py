"""Post a folder of sketches to an aggregator: each key is a source of its own.

    python -m spark_jobs.publish DIR --url http://localhost:8000 --stream NAME

Posting is idempotent, so whatever failed is simply posted again: a refused connection, a time-out,
an answer that never arrived. Running the program twice changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
import typer
from rich.progress import track
from rich.table import Table

from decaysketch.families import Recipe
from spark_jobs.console import JobError, console, human_bytes, reporting_errors
from spark_jobs.options import run
from spark_jobs.tables import SketchFolder, StoredSketch

__all__ = ["Publisher", "Receipt", "source_name"]

_SHOWN = 20  # sources in the report; the counts below it are of all


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the aggregator said to one sketch."""

    source: str
    size: int
    new: bool


class Publisher:
    """Posts sketches to one stream of an aggregator.

    Args:
        client: an httpx2 client whose base URL is the aggregator's.
        stream: name of the stream.
        attempts: how often one request is tried before it counts as failed.
        wait: called with seconds between two attempts.
    """

    def __init__(
        self,
        client: httpx2.Client,
        stream: str,
        *,
        attempts: int = 6,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._path = f"/v1/streams/{quote(stream, safe='')}"
        self._attempts = attempts
        self._wait = wait

    def create_stream(self, recipe: Recipe[Any]) -> None:
        """Create the stream of a recipe, or find it there with the same one.

        Raises:
            JobError: it has other parameters, or the aggregator does not take these.
        """
        self._request("PUT", self._path, json=recipe.to_dict())

    def post(self, source: str, blob: bytes) -> Receipt:
        """Post one sketch.

        Raises:
            JobError: the aggregator refused it, or could not be reached.
        """
        answer = self._request(
            "POST",
            f"{self._path}/sketches",
            params={"source": source},
            content=blob,
            headers={"content-type": "application/octet-stream"},
        )
        return Receipt(source, len(blob), not answer.json()["sketches"][0]["duplicate"])

    def post_all(self, sketches: Iterable[StoredSketch]) -> list[Receipt]:
        """Post sketches under the names of their keys, with a bar of how many are done."""
        named = [(source_name(sketch.key), sketch.blob) for sketch in sketches]
        return [
            self.post(source, blob)
            for source, blob in track(named, "posting sketches", console=console, transient=True)
        ]

    def _request(self, method: str, path: str, **arguments: Any) -> httpx2.Response:
        """Send until there is an answer that another attempt would not change."""
        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                self._wait(min(0.2 * 2**attempt, 10.0))
            try:
                response = self._client.request(method, path, **arguments)
            except httpx2.TransportError as fault:
                problem = f"{type(fault).__name__}: {fault}"
                continue
            if response.is_success:
                return response
            problem = _problem(response)
            if not (response.is_server_error or response.status_code in _TRY_AGAIN):
                raise JobError(f"{method} {path} was refused: {problem}")
        raise JobError(
            f"{method} {self._client.base_url.join(path)} failed {self._attempts} times: {problem}"
        )


_TRY_AGAIN = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}


def _problem(response: httpx2.Response) -> str:
    """What a problem body (RFC 9457) says, or else the status."""
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.reason_phrase
    return f"{response.status_code}: {detail}"


def source_name(key: tuple[Any, ...]) -> str:
    """The source that a key is posted as: its parts, joined by slashes."""
    if any(part is None for part in key):
        raise JobError(f"the key {key} has a null in it and cannot name a source")
    parts = [part.hex() if isinstance(part, bytes) else str(part) for part in key]
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts) or "all"


def main(
    folder: Annotated[Path, typer.Argument(help="A folder that build or merge wrote.")],
    url: Annotated[str, typer.Option(help="The aggregator, such as http://localhost:8000.")],
    stream: Annotated[str, typer.Option(help="The stream to post to.")],
    create: Annotated[
        bool, typer.Option(help="Create the stream, with the folder's parameters, if need be.")
    ] = True,
    attempts: Annotated[int, typer.Option(min=1, help="Tries for each request.")] = 6,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Patience for one answer.")] = 60.0,
) -> None:
    """Post each sketch of a folder to an aggregator, as a source of its own."""
    with reporting_errors():
        opened = SketchFolder.open(folder)
        sketches = opened.read()
        with httpx2.Client(base_url=url, timeout=timeout_s) as client:
            publisher = Publisher(client, stream, attempts=attempts)
            if create:
                publisher.create_stream(opened.recipe())
            receipts = publisher.post_all(sketches)
        report = Table("source", "posted", "new to the aggregator")
        for receipt in receipts[:_SHOWN]:
            report.add_row(
                receipt.source, human_bytes(receipt.size), "yes" if receipt.new else "no"
            )
        if len(receipts) > _SHOWN:
            report.add_row(f"and {len(receipts) - _SHOWN} more", "", "")
        console.print(report)
        total = sum(receipt.size for receipt in receipts)
        new = sum(receipt.new for receipt in receipts)
        console.print(
            f"{len(receipts):,} sketches, {human_bytes(total)} posted to {stream}; "
            f"{new:,} of them were new"
        )


if __name__ == "__main__":
    run(main)
