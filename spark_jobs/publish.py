"""Post a sketch table to an aggregator, and verify the aggregator's content.

    python -m spark_jobs.publish TABLE --url http://localhost:8000 --stream NAME

Each key is a separate source. With ``--source-by path`` each path is a source. It has a sketch for
each of its other keys, and these are posted together. Posting is idempotent, so any failed post is
simply repeated: a refused connection, a time-out, a lost response. Running the program twice
changes nothing.

Then the program queries the digest of each source. It must equal the digest of the posted sketches.
A source may rightly contain more: another program posts under its name, or the table was corrected
since the last publication and has lost rows that no merge removes. The report names these sources.
``--replace`` empties them (with a key that has the role admin) and posts them again. It empties a
source by revoking it and reinstating it at once. If the program is killed between the two, or if an
operator revoked the source on purpose, the aggregator rejects it until ``--reinstate``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress
from rich.table import Table

from decaysketch.cli.options import names
from decaysketch.cli.output import (
    AsJson,
    CommandError,
    human_bytes,
    report,
    show,
)
from decaysketch.cli.recipes import ApiKeyFile, CaFile, TimeoutS, api_client
from decaysketch.client.errors import ClientError
from decaysketch.client.posting import (
    Held,
    Poster,
    PostRefusedError,
    Receipt,
    joined,
    source_name,
)
from decaysketch.families import Recipe
from decaysketch.spark.tables import SketchTable, StoredSketch
from spark_jobs.failures import reporting_errors
from spark_jobs.options import open_table, run

__all__ = ["Published", "publish", "sources_of"]

_SHOWN = 20  # sources in the report; the counts below it are of all
_REVOKED = "revoked-source"
_OF_THE_CALLER = {401, 403, 404}  # faults of the caller: all other posts would fail, too


@dataclass(frozen=True, slots=True)
class Published:
    """The result for one source.

    Attributes:
        source: its name.
        receipt: the aggregator's receipt. None if it rejected the source.
        held: the aggregator's present content, compared with the posted sketches. None: not
            queried.
        problem: the reason for a rejection, else "".
    """

    source: str
    receipt: Receipt | None
    held: Held | None = None
    problem: str = ""


def sources_of(
    table: SketchTable, source_by: Sequence[str] | None = None
) -> dict[str, list[StoredSketch]]:
    """Return a table's sketches by their posting source.

    Args:
        table: stored completely in memory.
        source_by: the key columns that name a source. None: all.

    Raises:
        CommandError: a column is no key.
        ParameterError: a key has a null in it.
    """
    for name in source_by or ():
        if name not in table.by:
            raise CommandError(f"{table.path} has no key {name!r}; it has {', '.join(table.by)}")
    places = [table.by.index(name) for name in (table.by if source_by is None else source_by)]
    sources: dict[str, list[StoredSketch]] = {}
    for sketch in table.sketches():
        name = source_name(tuple(sketch.key[place] for place in places))
        sources.setdefault(name, []).append(sketch)
    return sources


def publish(
    poster: Poster,
    sources: Mapping[str, Sequence[StoredSketch]],
    recipe: Recipe,
    *,
    verify: bool = True,
    replacing: bool = False,
    reinstating: bool = False,
    concurrency: int = 8,
    done: Callable[[str, int], None] = lambda label, sources: None,
) -> list[Published]:
    """Post sketches, then compare the aggregator's content with them.

    Args:
        poster: for the stream.
        sources: each source's sketches.
        recipe: the stream's sketch configuration.
        verify: whether to query its content.
        replacing: whether to empty sources with additional content, and post them again.
        reinstating: whether to admit revoked sources again.
        concurrency: number of concurrent requests.
        done: called after each source with its result.

    Raises:
        CommandError: the aggregator is unreachable, or accepts nothing from this client.
            Acknowledged posts stay.
    """

    def post(source: str) -> Published:
        blobs = [sketch.blob for sketch in sources[source]]
        try:
            try:
                receipt = poster.post(source, blobs)
            except PostRefusedError as fault:
                if not reinstating or fault.kind != _REVOKED:
                    raise
                poster.reinstate(source)
                receipt = poster.post(source, blobs)
        except PostRefusedError as fault:
            if fault.kind == _REVOKED:
                problem = f"{fault}; --reinstate accepts it again"
                return Published(source, None, problem=problem)
            if fault.status in _OF_THE_CALLER:
                raise
            return Published(source, None, problem=str(fault))
        return Published(source, receipt)

    def check(published: Published) -> Published:
        if published.receipt is None:
            return published
        sketches, told = sources[published.source], listed.get(published.source)
        sketch = joined([each.blob for each in sketches], recipe)
        if told == sketch.digest():
            return replace(published, held="equal")
        held = poster.check(published.source, sketch, recipe, published.receipt.token)
        return replace(published, held=held)

    def renew(published: Published) -> Published:
        if published.held != "more":
            return published
        poster.clear(published.source)
        return check(post(published.source))

    posted = _each(post, sources, concurrency, "posted", done)
    if not verify:
        return posted
    listed = poster.digests(sources)
    checked = _each(check, posted, concurrency, "compared", done)
    if replacing and any(each.held == "more" for each in checked):
        listed = {}
        checked = _each(renew, checked, concurrency, "replaced", done)
    return checked


def _each(
    work: Callable[[Any], Published],
    items: Iterable[Any],
    concurrency: int,
    label: str,
    done: Callable[[str, int], None],
) -> list[Published]:
    results: list[Published] = []
    total = 0
    with ThreadPoolExecutor(concurrency) as pool:
        futures = [pool.submit(work, item) for item in items]
        total = len(futures)
        try:
            for future in futures:
                results.append(future.result())
                done(label, total)
        except ClientError as fault:
            raise CommandError(
                f"{fault}; {len(results):,} of {total:,} sources were {label} before, run it again"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)
    return results


def main(
    table: Annotated[Path, typer.Argument(help="A table that build or merge wrote.")],
    url: Annotated[str, typer.Option(help="The aggregator, such as http://localhost:8000.")],
    stream: Annotated[str, typer.Option(help="The stream to post to.")],
    create: Annotated[
        bool,
        typer.Option(help="Create the stream with the table's parameters if it does not exist."),
    ] = True,
    source_by: Annotated[
        str | None, typer.Option(help="Key columns that name a source. Default: all.")
    ] = None,
    verify: Annotated[
        bool, typer.Option(help="Compare the aggregator's content with the posted sketches.")
    ] = True,
    replacing: Annotated[
        bool,
        typer.Option(
            "--replace", help="Empty sources with more rows than were posted, and post them again."
        ),
    ] = False,
    reinstating: Annotated[
        bool,
        typer.Option(
            "--reinstate", help="Reinstate revoked sources, with a key of the role admin."
        ),
    ] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=64, help="Number of parallel requests.")
    ] = 8,
    attempts: Annotated[int, typer.Option(min=1, help="Number of tries for each request.")] = 6,
    timeout_s: TimeoutS = 60.0,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Post each sketch in a table to an aggregator, and compare the aggregator's content
    afterwards.
    """
    with reporting_errors():
        started = time.monotonic()
        if replacing and not verify:
            raise CommandError("--replace cannot be combined with --no-verify")
        opened = open_table(table)
        sources = sources_of(opened, None if source_by is None else names(source_by))
        with api_client(url, api_key_file, timeout_s, ca_file) as client:
            poster = Poster(client, stream, attempts=attempts)
            if create:
                poster.create_stream(opened.recipe)
            recipe = poster.recipe()
            with Progress(console=report, transient=True) as progress:
                bars: dict[str, Any] = {}

                def done(label: str, total: int) -> None:
                    if label not in bars:
                        bars[label] = progress.add_task(label, total=total)
                    progress.advance(bars[label])

                published = publish(
                    poster, sources, recipe, verify=verify, replacing=replacing,
                    reinstating=reinstating, concurrency=concurrency, done=done,
                )  # fmt: skip
        _tell(stream, published, time.monotonic() - started, as_json)
        if any(each.receipt is None or each.held == "missing" for each in published):
            raise typer.Exit(1)


def _tell(stream: str, published: Sequence[Published], seconds: float, as_json: bool) -> None:
    receipts = [each.receipt for each in published if each.receipt is not None]
    listed = {
        held: [each.source for each in published if each.held == held]
        for held in ("equal", "more", "missing")
    }
    content: dict[str, Any] = {
        "stream": stream,
        "sources": len(published),
        "sketches": sum(receipt.sketches for receipt in receipts),
        "bytes": sum(receipt.size for receipt in receipts),
        "new": sum(receipt.new for receipt in receipts),
        "equal": len(listed["equal"]),
        "more": listed["more"],
        "missing": listed["missing"],
        "refused": {each.source: each.problem for each in published if each.problem},
        "seconds": round(seconds, 3),
    }
    if as_json:
        show(True, content)
    rows = Table("source", "sketches", "posted", "new to the aggregator", "it holds")
    # Trouble first.
    for each in sorted(published, key=lambda p: (p.held == "equal", p.source))[:_SHOWN]:
        if each.receipt is None:
            rows.add_row(each.source, "", "refused", "", each.problem)
        else:
            receipt = each.receipt
            numbers = (f"{receipt.sketches:,}", human_bytes(receipt.size), f"{receipt.new:,}")
            rows.add_row(each.source, *numbers, each.held or "not compared")
    if len(published) > _SHOWN:
        rows.add_row(f"and {len(published) - _SHOWN:,} more", "", "", "", "")
    report.print(rows)
    report.print(
        f"{content['sketches']:,} sketches of {len(receipts):,} sources, "
        f"{human_bytes(content['bytes'])}, posted to {stream} in {seconds:.1f} s; "
        f"{content['new']:,} of them were new",
        soft_wrap=True,
    )
    if any(each.held is not None for each in published):
        report.print(
            f"the aggregator has exactly the posted rows of {content['equal']:,} sources, more of "
            f"{len(listed['more']):,}, less of {len(listed['missing']):,}",
            soft_wrap=True,
        )


if __name__ == "__main__":
    run(main)
