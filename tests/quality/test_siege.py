"""The siege in small: what it measures it finds, and the service stands it."""

from __future__ import annotations

import gzip
import http.client
import itertools
import random
import socket
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import decaysketch as ds
from quality import siege
from quality.besieging import Attack, Request, send
from quality.siege import ATTACKS, Outcome, Sent, Worst, besiege

SMALL = {
    "DECAYSKETCH_MAX_RESIDENT_ROWS": "3000000",
    "DECAYSKETCH_MAX_STREAM_ROWS": "3000000",
    "DECAYSKETCH_MAX_SKETCH_ROWS": "1200000",
    "DECAYSKETCH_MAX_POST_ROWS": "1100000",
    "DECAYSKETCH_MAX_INFLIGHT_ROWS": "1200000",
    "DECAYSKETCH_MAX_READ_ROWS": "1000000",
    "DECAYSKETCH_MAX_INFLATED_BYTES": "16 MiB",
    "DECAYSKETCH_MAX_INFLIGHT_BYTES": "32 MiB",
    "DECAYSKETCH_QUEUE_BYTES": "32 MiB",
    "DECAYSKETCH_MAX_RESPONSE_BYTES": "32 MiB",
    "DECAYSKETCH_MAX_JSON_BYTES": "256 KiB",
}


def test_a_foreign_page_gets_nothing_from_a_server_without_keys() -> None:
    outcome = besiege("foreign", ATTACKS["foreign"], seconds=2)
    assert outcome.sent.requests > 9, outcome
    assert not [status for status in outcome.sent.answers if status < 400], outcome
    assert not outcome.worst.faults


def test_few_bytes_do_not_pass_the_bound_of_memory() -> None:
    attack = replace(ATTACKS["rows"], connections=1)
    outcome = besiege("rows", attack, seconds=float("inf"), attempts=40, settings=SMALL)
    assert outcome.sent.requests == 40
    assert outcome.sent.sent_bytes < 2 << 20
    assert outcome.bound_bytes < 3 << 30  # 32 sketches of a million rows took 4 GB
    assert outcome.peak_bytes <= outcome.bound_bytes
    assert outcome.restart_peak_bytes <= outcome.bound_bytes


def test_what_may_not_be_taken_is_found_if_it_is() -> None:
    """A study that cannot fail shows nothing."""

    def lists(_connection: int, _draw: random.Random) -> list[Request]:
        return [Request("GET", "/v1/streams")] * 5

    listing = Attack(None, lambda _http: None, lambda c, d: iter(lists(c, d)), refused=True)
    outcome = _outcome(Sent(5, 0, Counter({200: 5})), Worst())
    assert list(siege._faults(outcome, listing)) == ["answered [200]; expected refusals alone"]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"peak_bytes": 101}, "memory reached 101; the bound is 100"),
        ({"restart_peak_bytes": 102}, "the start took 102 bytes; the bound is 100"),
        ({"worst": Worst(health_s=1.5)}, "/healthz waited 1.50 s"),
        ({"worst": Worst(post_s=1.25)}, "a post of another waited 1.25 s"),
        ({"worst": Worst(long_post_s=1.5)}, "a post of 5000 rows of another waited 1.50 s"),
        ({"worst": Worst(faults=["it was refused"])}, "it was refused"),
        (
            {"sent": Sent(1, 0, Counter({500: 1}))},
            "answered [500]; expected 503 or 507 at the most",
        ),
    ],
)
def test_every_broken_promise_is_told(changed: dict[str, object], fault: str) -> None:
    sound = _outcome(Sent(2, 0, Counter({200: 1, 429: 1, 507: 1})), Worst())
    assert not list(siege._faults(sound, ATTACKS["rows"]))
    broken = replace(sound, **changed)  # type: ignore[arg-type]
    assert list(siege._faults(broken, ATTACKS["rows"])) == [fault]


def test_a_body_of_the_attack_on_memory_is_small_and_sound() -> None:
    form, body = siege._dense("decay", 1 << 16)
    assert len(gzip.compress(body)) < 1 << 10
    assert len(ds.DecaySketch.from_bytes(body)) == 1 << 16
    assert form["params"]["capacity"] == 1 << 16


def test_an_attack_goes_on_and_is_the_same_for_the_same_seed() -> None:
    for name in ("expressions", "readers", "queries", "foreign", "unfinished", "hang-ups"):
        first, again = (
            list(itertools.islice(ATTACKS[name].requests(1, random.Random(7)), 12))
            for _ in range(2)
        )
        assert [(each.method, each.path) for each in first] == [
            (each.method, each.path) for each in again
        ]
        assert len(first) == 12


def test_work_for_clients_that_have_left_is_found() -> None:
    busy = replace(_outcome(Sent(2), Worst()), busy_s=0.9)
    assert list(siege._faults(busy, ATTACKS["mappings"])) == [
        "a second after the last client had left the server was busy for 0.9 s"
    ]
    assert not list(siege._faults(busy, ATTACKS["writers"]))


@pytest.mark.parametrize(
    ("way", "seen"),
    [("hang-up", b"body"), ("unfinished", b"4\r\nbody\r\n"), ("unread", b"body")],
)
def test_what_a_server_sees_of_who_leaves_or_does_not_read(way: Any, seen: bytes) -> None:
    received: list[bytes] = []

    def accept() -> None:
        connection, _ = server.accept()
        with connection:
            while chunk := connection.recv(1000):
                received.append(chunk)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept)
        thread.start()
        http_port = server.getsockname()[1]
        request = Request("POST", "/x", b"body", (), way, 0.01)
        assert send(http.client.HTTPConnection("127.0.0.1", http_port), request, "key") == 0
        thread.join()
    head, _, body = b"".join(received).partition(b"\r\n\r\n")
    assert body == seen
    assert b"Authorization: Bearer key" in head


def _outcome(sent: Sent, worst: Worst) -> Outcome:
    return Outcome("rows", 1.0, sent, worst, 50, 90, 100, 1.0, 80, 0)
