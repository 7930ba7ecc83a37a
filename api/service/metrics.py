"""Prometheus counters, gauges and histograms for one application.

Each application has its own registry, so that two applications in one process do not add up. With
several workers, every process counts into files in one directory (``PROMETHEUS_MULTIPROC_DIR``,
which ``python -m api`` makes and names). Whichever worker is scraped returns the metrics for all
workers. Counters and histograms are added. For a gauge, see its help text.

Labels are bounded. Routes are templates, methods are the known ones, and beyond
``STREAMS_LABELLED`` streams the rest share one label. The source is not a label. There may be one
source per device, each would be a permanent time series in the monitoring system, and any client
that may post could create as many as it likes. The post count per source is part of the stream's
state (``GET /v1/streams/{name}``), stored anyway.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import nan
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from api.resources import bound_bytes
from api.service.budget import Memory
from api.service.observer import Observer
from api.settings import Settings

__all__ = [
    "MEDIA_TYPE",
    "MONITOR_GAUGES",
    "MULTIPROCESS_VARIABLE",
    "QUEUES",
    "STATES",
    "STREAMS_LABELLED",
    "VERDICTS",
    "Metrics",
]

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
STREAMS_LABELLED = 1000
VERDICTS = ("retained", "already_retained", "below_watermark", "refused")

QUEUES = {
    "questions": "Time slices of queries that wait for a thread",
    "decays": "Decays of new streams that wait to be computed",
    "posts": "Time slices of posts that wait for a thread",
    "long_posts": "Time slices of long posts that wait for their thread",
}

STATES = ("calm", "uncertain", "firing")  # of a monitor, by the number that its gauge shows
PHASES = ("inactive", "pending", "firing")  # of its alert
MONITOR_GAUGES = {
    "state": "State of a monitor: 0 calm, 1 uncertain, 2 firing",
    "alert": "State of a monitor's alert: 0 inactive, 1 pending, 2 firing",
    "lower": "Lower bound of a monitor's aggregate",
    "upper": "Upper bound of a monitor's aggregate, including rows that sources may hold back",
    "threshold": "Threshold of a monitor",
    "silent_sites": "Sources of a monitor without a current report",
}
_OF_MONITOR = ("stream", "monitor")

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_OTHER = "(other)"
_RSS_EVERY_S = 1.0
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


disable_created_metrics()  # type: ignore[no-untyped-call]  # a series per counter that says when it was first counted


class Metrics(Observer):
    """Counters for one application. Safe to call from any thread.

    ``stream`` always names an existing stream. A name invented by a request would use up a label.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._streams: set[str] = set()
        self._post_counters: dict[str, list[Callable[[float], None]]] = {}  # by stream
        self._counters: dict[
            tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None]]
        ] = {}
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"decaysketch_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, mode: str, *labels: str) -> Gauge:
            return Gauge(
                f"decaysketch_{name}",
                text,
                labels,
                registry=registry,
                multiprocess_mode=mode,  # type: ignore[arg-type]
            )

        def histogram(
            name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
        ) -> Histogram:
            return Histogram(
                f"decaysketch_{name}", text, labels, registry=registry, buckets=buckets
            )

        self._requests = counter("http_requests", "Requests answered.", "method", "route", "status")
        self._request_seconds = histogram(
            "http_request_seconds",
            "Time from the head of a request to the end of its response.",
            "route",
        )
        self._received = counter("http_received_bytes", "Bytes of request bodies, as sent.")
        self._sent = counter("http_sent_bytes", "Bytes of response bodies.")
        self._posts = counter("posts", "Accepted posts of sketches or observations.", "stream")
        self._posted = counter("posted_bytes", "Bytes of accepted sketches.", "stream")
        self._posted_rows = counter("posted_rows", "Rows of accepted sketches.", "stream")
        self._rows = counter("observations", "Raw observations, by status.", "stream", "verdict")
        self._refused = counter(
            "refused", "Rejected posts and observations, by reason.", "stream", "reason"
        )
        self._skipped = counter(
            "skipped",
            "Skipped parts of bodies in other formats, by kind.",
            "stream",
            "kind",
        )
        self._disagreeing = counter(
            "disagreeing",
            "Observations with the identity and time of another one, but another value. The "
            "largest value counts.",
            "stream",
        )
        self._suspicious = counter(
            "suspicious",
            "Readings that were accepted and are suspicious, by kind: replaced (by another reading "
            "of their id), undated (outside the years 1990 to 2100), gateway-clock (its time was "
            "not used), instance (nothing distinguishes replicas).",
            "stream",
            "kind",
        )
        self._dropped = counter(
            "dropped_values",
            "Dropped values in messages, by declared column (empty: another name) and reason.",
            "stream",
            "column",
            "reason",
        )
        self._left_out = counter(
            "left_out",
            "Parts of acknowledged posts that contradict earlier ones, and are not in the stream.",
            "stream",
        )
        self._replacing = gauge(
            "replacing_rows",
            "Stored rows that replace an earlier duplicate from another source, in one worker.",
            "livemax",
            "stream",
        )
        self._commit_seconds = histogram(
            "journal_commit_seconds", "Time of one transaction, until it is on stable storage."
        )
        self._commit_posts = histogram(
            "journal_commit_posts", "Posts that shared one transaction.", buckets=_BATCH
        )
        self._committed_bytes = counter("journal_committed_bytes", "Bytes written to the journal.")
        self._unwritten = counter(
            "journal_failures", "Failed journal transactions, including probes."
        )
        self._failures = counter(
            "background_failures",
            "Unexpected errors in background tasks that were tried again, by task.",
            "task",
        )
        self._fold_seconds = histogram("fold_seconds", "Time to merge a batch of committed posts.")
        self._folded = counter("folded_posts", "Posts merged into the streams' sketches.")
        self._backlog = gauge(
            "backlog_posts",
            "Committed posts that are not merged yet, in the worst worker.",
            "livemax",
        )
        self._lag = gauge(
            "journal_lag_rows",
            "Journal rows that are not merged yet, in the worst worker.",
            "livemax",
        )
        self._compaction_seconds = histogram("compaction_seconds", "One compaction.")
        self._compacted = counter("compacted_rows", "Journal rows that snapshots replaced.")
        self._reloads = counter("reloads", "Restarts from another worker's snapshots.")
        self._torn = counter("torn_snapshots", "Snapshots that could not be read.")
        self._queries = counter("queries", "Queries answered.", "aggregate", "cached")
        self._query_seconds = histogram(
            "query_seconds", "Time of one query that was not in the cache.", "aggregate"
        )
        self._waiting = {
            name: gauge(f"{name}_waiting", f"{text}, in all workers.", "livesum")
            for name, text in QUEUES.items()
        }
        self._rejected = counter(
            "rejected",
            "Requests rejected (429) because the limit of running work was reached, for their "
            "caller or in total.",
            "queue",
            "of",
        )
        self._live = gauge("live_clients", "Live connections, in all workers.", "livesum")
        self._events = gauge(
            "event_clients",
            "Connections that follow events of monitors, in all workers.",
            "livesum",
        )
        self._monitor = {
            name: gauge(f"monitor_{name}", f"{text}, in one worker.", "livemax", *_OF_MONITOR)
            for name, text in MONITOR_GAUGES.items()
        }
        self._recalls = counter("monitor_recalls", "Requests to sources to post.", "stream")
        self._webhook_failures = counter(
            "webhook_failures",
            "Failed requests of alerts, and dropped alerts.",
            "given_up",
        )
        self._relayed = counter(
            "relay_posts", "Sketches that the upstream has accepted.", "stream", "whole"
        )
        self._relayed_bytes = counter("relay_posted_bytes", "Their bytes.", "stream", "whole")
        self._relay_failures = counter(
            "relay_failures", "Failed requests to the upstream.", "reason"
        )
        self._relay_let_go = counter(
            "relay_let_go",
            "Dropped deltas (upstream_queue_rows). The relay sends the complete stream instead.",
            "stream",
        )
        self._relay_streams = gauge(
            "relay_streams", "Forwarded streams, by state.", "livemax", "state"
        )
        self._relay_oldest = gauge(
            "relay_oldest_unsent_seconds",
            "Time for which the upstream has lacked rows of some stream.",
            "livemax",
        )
        self._relay_rows = gauge("relay_waiting_rows", "Rows that wait to be sent.", "livemax")
        self._streams_held = gauge("streams", "Streams.", "livemax")
        self._sources_held = gauge("sources", "Sources in all streams.", "livemax")
        self._resident_rows = gauge(
            "resident_rows", "Rows in memory, in the fullest worker.", "livemax"
        )
        self._resident_rows_limit = gauge(
            "resident_rows_limit", "Row limit of a worker (max_resident_rows).", "livemax"
        )
        self._inflight_rows = gauge(
            "inflight_rows", "Rows of posts in progress, in all workers.", "livesum"
        )
        self._read_rows = gauge("read_rows", "Rows that queries read, in all workers.", "livesum")
        self._bound = gauge(
            "memory_bound_bytes",
            "Memory limit of a worker that follows from its settings.",
            "livemax",
        )
        self._rss = gauge("resident_memory_bytes", "Resident memory, per worker.", "liveall")
        self._read_rss()

    # ------------------------------------------------------------------------------- requests

    def requested(
        self, method: str, route: str, status: int, seconds: float, received: int, sent: int
    ) -> None:
        """Count an answered request. ``route`` is a template, or empty if no route matched."""
        count, observe = self._counters_of(method if method in _METHODS else _OTHER, route, status)
        count()
        observe(seconds)
        self._received.inc(received)
        self._sent.inc(sent)
        if time.monotonic() - self._rss_read_at >= _RSS_EVERY_S:
            self._read_rss()

    def _counters_of(
        self, method: str, route: str, status: int
    ) -> tuple[Callable[[], None], Callable[[float], None]]:
        """Return the counters for requests and their seconds. They are cached, since finding
        them takes as long as counting. There are few methods, routes and statuses.
        """
        kept = self._counters.get((method, route, status))
        if kept is None:
            requests = self._requests.labels(method, route or _OTHER, str(status))
            seconds = self._request_seconds.labels(route or _OTHER)
            kept = self._counters[method, route, status] = requests.inc, seconds.observe
        return kept

    # ---------------------------------------------------------------------------------- posts

    def posted(self, stream: str, source: str, bodies: int, size: int, rows: int) -> None:
        """Count accepted posts from ``source``: the number of bodies, and their total bytes and
        rows.
        """
        label = self._stream(stream)
        kept = self._post_counters.get(label)
        if kept is None:
            counters = self._posts, self._posted, self._posted_rows
            kept = self._post_counters[label] = [each.labels(label).inc for each in counters]
        for count, number in zip(kept, (bodies, size, rows), strict=True):
            count(number)

    def observations(self, stream: str, source: str, verdict: str, rows: int) -> None:
        """Count the row status of each observation from ``source``. Each status is in
        ``VERDICTS``.
        """
        assert verdict in VERDICTS, verdict
        self._rows.labels(self._stream(stream), verdict).inc(rows)

    def refused(self, stream: str, reason: str, count: int = 1) -> None:
        """Count rejected posts or observations. ``reason`` is a constant of the program (a
        problem slug or the name of a check), never a text from a request.
        """
        self._refused.labels(self._stream(stream), reason).inc(count)

    def skipped(self, stream: str, kind: str, count: int) -> None:
        """Count parts that do not belong to the stream, in bodies with other formats. ``kind``
        is a constant of the program.
        """
        self._skipped.labels(self._stream(stream), kind).inc(count)

    def disagreeing(self, stream: str, rows: int) -> None:
        """Count accepted observations that disagree with another observation with the same
        identity and time.
        """
        self._disagreeing.labels(self._stream(stream)).inc(rows)

    def suspicious(self, stream: str, kind: str, count: int) -> None:
        """Count accepted suspicious readings. ``kind`` is a constant of the program."""
        self._suspicious.labels(self._stream(stream), kind).inc(count)

    def dropped(self, stream: str, column: str, reason: str, count: int) -> None:
        """Count values that fill no column. ``reason`` is a constant of the program."""
        self._dropped.labels(self._stream(stream), column, reason).inc(count)

    def left_out(self, stream: str) -> None:
        """Count a part of an acknowledged post that the stream does not contain, because it
        contradicts the stream's content.
        """
        self._left_out.labels(self._stream(stream)).inc()

    def replacing(self, stream: str, rows: int) -> None:
        """Set how many rows replace rows from another source."""
        label = self._stream(stream)
        if label != _OTHER:  # a number of one of them would pass for that of all
            self._replacing.labels(label).set(rows)

    # -------------------------------------------------------------------------------- journal

    def committed(self, posts: int, size: int, seconds: float) -> None:
        """Count one transaction that put so many posts on stable storage."""
        self._commit_seconds.observe(seconds)
        self._commit_posts.observe(posts)
        self._committed_bytes.inc(size)

    def unwritten(self) -> None:
        """Count one failed transaction."""
        self._unwritten.inc()

    def failed(self, task: str) -> None:
        """Count one exception in a task. A constant of the program names the task."""
        self._failures.labels(task).inc()

    def folded(self, posts: int, seconds: float) -> None:
        """Count one merged batch."""
        self._fold_seconds.observe(seconds)
        self._folded.inc(posts)

    def backlog(self, posts: int) -> None:
        """Set how many posts are committed and not yet merged."""
        self._backlog.set(posts)

    def lag(self, rows: int) -> None:
        """Set how many journal rows this process has not read."""
        self._lag.set(rows)

    def compacted(self, seconds: float, rows: int) -> None:
        """Count one compaction that replaced so many rows."""
        self._compaction_seconds.observe(seconds)
        self._compacted.inc(rows)

    def reloaded(self) -> None:
        """Count one reload from the snapshots."""
        self._reloads.inc()

    def torn(self) -> None:
        """Count an unreadable snapshot. The previous one and the journal replaced it."""
        self._torn.inc()

    def holding(self, streams: int, sources: int) -> None:
        """Set the stream count and the total source count."""
        self._streams_held.set(streams)
        self._sources_held.set(sources)

    def memory(self, memory: Memory, settings: Settings) -> None:
        """Set the memory in use, and its limits."""
        self._resident_rows.set(memory.resident.rows)
        self._resident_rows_limit.set(settings.max_resident_rows)
        self._inflight_rows.set(memory.flight.rows)
        self._read_rows.set(memory.reading.rows)
        self._bound.set(bound_bytes(settings))

    # -------------------------------------------------------------------------------- queries

    def queried(self, aggregate: str, seconds: float, cached: bool) -> None:
        """Count one answered query. ``aggregate`` is in the schemas."""
        self._queries.labels(aggregate, "yes" if cached else "no").inc()
        if not cached:
            self._query_seconds.labels(aggregate).observe(seconds)

    def waiting(self, queue: str, change: int) -> None:
        """Add or subtract time slices that wait in a queue from ``QUEUES``."""
        self._waiting[queue].inc(change)

    def rejected(self, queue: str, of: str) -> None:
        """Count a rejected request. It reached the limit for its ``caller``, or for ``all``."""
        self._rejected.labels(queue, of).inc()

    def live(self, change: int) -> None:
        """Count a live connection that opened (1) or closed (-1)."""
        self._live.inc(change)

    def events(self, change: int) -> None:
        """Count a connection for events that opened (1) or closed (-1)."""
        self._events.inc(change)

    # ------------------------------------------------------------------------------- monitors

    def watched(
        self,
        stream: str,
        monitor: str,
        states: tuple[str, str],
        bounds: tuple[float | None, float | None, float],
        silent: int,
    ) -> None:
        """Record an evaluated monitor. A setting limits their number."""
        lower, upper, threshold = bounds
        found = {
            "state": STATES.index(states[0]),
            "alert": PHASES.index(states[1]),
            "lower": nan if lower is None else lower,
            "upper": nan if upper is None else upper,
            "threshold": threshold,
            "silent_sites": silent,
        }
        for name, value in found.items():
            self._monitor[name].labels(stream, monitor).set(value)

    def unwatched(self, stream: str, monitor: str) -> None:
        """Remove the series for a deleted monitor."""
        for each in self._monitor.values():
            if os.environ.get(MULTIPROCESS_VARIABLE):  # their files keep every series
                each.labels(stream, monitor).set(nan)
                continue
            with suppress(KeyError):
                each.remove(stream, monitor)

    def recalled(self, stream: str) -> None:
        """Count participating sources that the server asked to post."""
        self._recalls.labels(self._stream(stream)).inc()

    def webhook_failed(self, *, given_up: bool) -> None:
        """Count a failed request, or an alert that the server does not try again."""
        self._webhook_failures.labels("yes" if given_up else "no").inc()

    # ---------------------------------------------------------------------------------- relay

    def relayed(self, stream: str, size: int, *, whole: bool) -> None:
        """Count a sketch that the upstream accepted."""
        labels = self._stream(stream), "yes" if whole else "no"
        self._relayed.labels(*labels).inc()
        self._relayed_bytes.labels(*labels).inc(size)

    def relay_failed(self, reason: str) -> None:
        """Count one failed request. ``reason`` is in ``RELAY_FAILURES``."""
        self._relay_failures.labels(reason).inc()

    def relay_let_go(self, stream: str) -> None:
        """Count one dropped relay buffer."""
        self._relay_let_go.labels(self._stream(stream)).inc()

    def relay_stands(self, states: Mapping[str, int], oldest_s: float, rows: int) -> None:
        """Set the relay gauges. ``states``: stream count for each state in ``RELAY_STATES``."""
        for name, streams in states.items():
            self._relay_streams.labels(name).set(streams)
        self._relay_oldest.set(oldest_s)
        self._relay_rows.set(rows)

    # --------------------------------------------------------------------------------- scrape

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format, for every worker if there are
        several.
        """
        self._read_rss()
        directory = os.environ.get(MULTIPROCESS_VARIABLE)
        if not directory:
            return generate_latest(self.registry)
        _forget_the_dead(Path(directory))
        registry = CollectorRegistry()
        MultiProcessCollector(registry, directory)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _read_rss(self) -> None:
        self._rss_read_at = time.monotonic()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self._rss.set(pages * self._page_bytes)

    def _stream(self, name: str) -> str:
        if name in self._streams:
            return name
        if len(self._streams) >= STREAMS_LABELLED:
            return _OTHER
        self._streams.add(name)
        return name


def _forget_the_dead(directory: Path) -> None:
    """Skip the gauges from workers that have ended. Their counters stay."""
    pids = {int(file.stem.rpartition("_")[2]) for file in directory.glob("gauge_live*_*.db")}
    for pid in pids:
        if Path(f"/proc/{pid}").exists():
            continue
        with suppress(FileNotFoundError):  # another worker is scraped at this moment, and faster
            mark_process_dead(pid, str(directory))  # type: ignore[no-untyped-call]
