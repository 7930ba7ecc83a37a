"""Counters: what the text for Prometheus says after what happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.service.metrics import STREAMS_LABELLED, Metrics
from api.settings import Settings

ROOT = Path(__file__).parents[3]


def samples(text: str) -> dict[tuple[str, ...], float]:
    """``{(name, label value, ...): value}``, the values in order of the names of the labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(counted: Metrics) -> dict[tuple[str, ...], float]:
    return samples(counted.exposition().decode())


def test_what_is_told_is_counted() -> None:
    counted = Metrics()
    counted.requested("GET", "/v1/streams/{name}", 200, 0.02, 10, 300)
    counted.requested("GET", "/v1/streams/{name}", 200, 0.04, 0, 200)
    counted.requested("BREW", "", 404, 0.001, 0, 5)
    counted.posted("s", "a", 2, 1000, 30)
    counted.observations("s", "a", "retained", 7)
    counted.observations("s", "a", "refused", 1)
    counted.refused("s", "corrupt-sketch")
    counted.refused("s", "corrupt-sketch", 4)
    counted.replacing("s", 7)
    counted.replacing("s", 5)
    counted.committed(3, 1500, 0.003)
    counted.folded(3, 0.2)
    counted.backlog(12)
    counted.backlog(5)
    counted.lag(9)
    counted.compacted(1.5, 2000)
    counted.reloaded()
    counted.torn()
    counted.holding(4, 40)
    counted.queried("sum", 0.004, False)
    counted.queried("sum", 0.0, True)
    counted.live(1)
    counted.live(1)
    counted.live(-1)
    counted.events(1)
    counted.watched("s", "m", ("firing", "pending"), (4.5, None, 5.0), 3)
    counted.recalled("s")
    counted.webhook_failed(given_up=False)
    counted.watched("s", "gone", ("calm", "inactive"), (1.0, 2.0, 5.0), 0)
    counted.unwatched("s", "gone")
    expected = {
        ("decaysketch_http_requests_total", "GET", "/v1/streams/{name}", "200"): 2,
        ("decaysketch_http_requests_total", "(other)", "(other)", "404"): 1,
        ("decaysketch_http_request_seconds_sum", "/v1/streams/{name}"): pytest.approx(0.06),
        ("decaysketch_http_request_seconds_bucket", "0.025", "/v1/streams/{name}"): 1,
        ("decaysketch_http_received_bytes_total",): 10,
        ("decaysketch_http_sent_bytes_total",): 505,
        ("decaysketch_posts_total", "s"): 2,
        ("decaysketch_posted_bytes_total", "s"): 1000,
        ("decaysketch_posted_rows_total", "s"): 30,
        ("decaysketch_observations_total", "s", "retained"): 7,
        ("decaysketch_observations_total", "s", "refused"): 1,
        ("decaysketch_refused_total", "corrupt-sketch", "s"): 5,
        ("decaysketch_replacing_rows", "s"): 5,
        ("decaysketch_journal_commit_seconds_count",): 1,
        ("decaysketch_journal_commit_posts_sum",): 3,
        ("decaysketch_journal_commit_posts_bucket", "2.0"): 0,
        ("decaysketch_journal_commit_posts_bucket", "4.0"): 1,
        ("decaysketch_journal_committed_bytes_total",): 1500,
        ("decaysketch_fold_seconds_sum",): pytest.approx(0.2),
        ("decaysketch_folded_posts_total",): 3,
        ("decaysketch_backlog_posts",): 5,
        ("decaysketch_journal_lag_rows",): 9,
        ("decaysketch_compaction_seconds_count",): 1,
        ("decaysketch_compacted_rows_total",): 2000,
        ("decaysketch_reloads_total",): 1,
        ("decaysketch_torn_snapshots_total",): 1,
        ("decaysketch_streams",): 4,
        ("decaysketch_sources",): 40,
        ("decaysketch_queries_total", "sum", "no"): 1,
        ("decaysketch_queries_total", "sum", "yes"): 1,
        ("decaysketch_query_seconds_count", "sum"): 1,
        ("decaysketch_live_clients",): 1,
        ("decaysketch_event_clients",): 1,
        ("decaysketch_monitor_state", "m", "s"): 2,
        ("decaysketch_monitor_alert", "m", "s"): 1,
        ("decaysketch_monitor_lower", "m", "s"): 4.5,
        ("decaysketch_monitor_threshold", "m", "s"): 5,
        ("decaysketch_monitor_silent_sites", "m", "s"): 3,
        ("decaysketch_monitor_recalls_total", "s"): 1,
        ("decaysketch_webhook_failures_total", "no"): 1,
    }
    found = scraped(counted)
    assert {key: found.get(key) for key in expected} == expected
    assert found["decaysketch_resident_memory_bytes",] > 1e6


def test_applications_do_not_share_counters() -> None:
    one, other = (create_app(Settings()).state.metrics for _ in range(2))
    one.reloaded()
    assert scraped(one)["decaysketch_reloads_total",] == 1
    assert scraped(other)["decaysketch_reloads_total",] == 0


def test_labels_are_bounded() -> None:
    counted = Metrics()
    for number in range(STREAMS_LABELLED + 5):
        counted.posted(f"s{number}", f"device-{number}", 1, 1, 1)
    counted.posted("s3", "device-3", 1, 1, 1)
    found = scraped(counted)
    posts = {key[1]: value for key, value in found.items() if key[0] == "decaysketch_posts_total"}
    assert len(posts) == STREAMS_LABELLED + 1
    assert (posts["s3"], posts["(other)"]) == (2, 5)
    assert not any("device" in part for key in found for part in key)


def test_a_verdict_that_there_is_not() -> None:
    with pytest.raises(AssertionError, match="kept"):
        Metrics().observations("s", "a", "kept", 1)


_WORKER = """
from api.service.metrics import Metrics
counted = Metrics()
counted.posted("s", "a", {posts}, 10, 100)
counted.committed(1, 10, 0.5)
counted.backlog({backlog})
counted.live(2)
{then}
"""


def test_workers_count_together(tmp_path: Path) -> None:
    """Whichever worker is scraped answers for all of them; of one that is gone the counters stay
    and the gauges do not."""

    def worker(posts: int, backlog: int, then: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _WORKER.format(posts=posts, backlog=backlog, then=then)],
            cwd=ROOT,
            env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    with worker(1, 1000, "pass") as gone:
        assert gone.wait(1800) == 0
    with worker(2, 7, "print('ready', flush=True); input()") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "ready\n"
        with worker(4, 3, "print(counted.exposition().decode())") as scraping:
            text, _ = scraping.communicate(timeout=1800)
        waiting.communicate("\n", timeout=1800)
    found = samples(text)
    assert found["decaysketch_posts_total", "s"] == 7
    assert found["decaysketch_journal_commit_seconds_count",] == 3
    assert found["decaysketch_journal_commit_seconds_sum",] == 1.5
    assert found["decaysketch_backlog_posts",] == 7
    assert found["decaysketch_live_clients",] == 4
    resident = {key[1]: of for key, of in found.items() if "resident_memory_bytes" in key[0]}
    assert resident.keys() == {str(waiting.pid), str(scraping.pid)}
    assert min(resident.values()) > 1e6
