"""What the sources of a stream heard, over HTTP: the same numbers as in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from service import problem

import decaysketch as ds
from api.queries.sources import usual_settle_s
from api.service.source_stats import Sender
from decaysketch.sources.report import UNHEARD_NOTE, report

URL = "/v1/streams/field"
PARAMS = ds.SketchParams(capacity=100, time_unit="frames", seed=4)


def sketches(capacity: int = 100, n: int = 3000) -> dict[str, ds.DecaySketch]:
    rng = np.random.default_rng(3)
    heard = rng.random((n, 3)) < (0.8, 0.5, 0.1)
    times = np.sort(rng.integers(0, 50_000, n))
    made = {}
    for source, name in enumerate(("gw-1", "gw-2", "roof")):
        rows = np.flatnonzero(heard[:, source])
        made[name] = ds.DecaySketch(PARAMS.with_capacity(capacity))
        made[name].update(None, 1, times[rows], rows)
    return made


@pytest.fixture
def field(client: TestClient) -> TestClient:
    creation = {"params": PARAMS.to_dict()}
    assert client.put(URL, json=creation).status_code == 201
    for name, sketch in sketches().items():
        post = client.post(
            f"{URL}/sketches", params={"source": name}, content=sketch.to_bytes(),
            headers={"content-type": "application/octet-stream"},
        )  # fmt: skip
        assert post.status_code == 200, post.text
    return client


def asked(client: Any, **query: Any) -> dict[str, Any]:
    response = client.get(f"{URL}/coverage", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_the_numbers_are_those_of_the_library(field: TestClient) -> None:
    found = asked(field, decay="exponential(half_life=9000)", now="50000", settle="100")
    view = ds.SourceSet(sketches(), settle=100).at("exponential(half_life=9000)", 50_000)
    expected = report(view)
    for name in ("now", "union", "exclusive", "overlaps", "cover", "histories", "heard_by"):
        assert found[name] == expected[name], name
    assert [each["source"] for each in found["sources"]] == ["gw-1", "gw-2", "roof"]
    assert found["unheard"]["note"] == UNHEARD_NOTE
    assert "assumes-independence" in found["unheard"]["caveats"]
    assert "assumes-independence" in found["caveats"]
    assert found["asked"] is None


def test_one_set_has_its_count_its_share_and_ids(field: TestClient) -> None:
    found = asked(field, set='"gw-1" - "gw-2"', of="'gw-1'", settle="0", limit=3)["asked"]
    view = ds.SourceSet(sketches()).at("none")
    assert found["count"] == view.count('"gw-1" - "gw-2"').to_dict()
    assert found["share"] == view.share('"gw-1" - "gw-2"', of='"gw-1"').to_dict()
    missing = view.missing('"gw-1" - "gw-2"', 3)
    assert [each["id"] for each in found["missing"]] == [str(each.id) for each in missing]


def test_results_have_a_tag_and_follow_the_posts(field: TestClient) -> None:
    first = field.get(f"{URL}/coverage")
    tag = first.headers["etag"]
    again = field.get(f"{URL}/coverage", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    more = ds.DecaySketch(PARAMS)
    more.update(None, 1, [50_001], [99_999])
    field.post(
        f"{URL}/sketches", params={"source": "roof"}, content=more.to_bytes(),
        headers={"content-type": "application/octet-stream"},
    )  # fmt: skip
    assert field.get(f"{URL}/coverage", headers={"if-none-match": tag}).status_code == 200


def test_some_of_the_sources_can_be_read_and_revoked_ones_are_not(field: TestClient) -> None:
    some = asked(field, source=["gw-1", "roof"])
    assert [each["source"] for each in some["sources"]] == ["gw-1", "roof"]
    problem(field.get(f"{URL}/coverage", params={"source": "cellar"}), 404, "unknown-source")
    assert field.post(f"{URL}/sources/roof/revoke", json={}).status_code == 204
    assert [each["source"] for each in asked(field)["sources"]] == ["gw-1", "gw-2"]
    problem(field.get(f"{URL}/coverage", params={"source": "roof"}), 404, "unknown-source")


@pytest.mark.parametrize(
    ("query", "field_at_fault"),
    [
        ({"set": "a &"}, "set"),
        ({"set": "cellar"}, "set"),
        ({"guard": "soon"}, "guard"),
        ({"settle": "-1"}, "settle"),
        ({"decay": "nothing"}, "decay"),
        ({"now": "yesterday"}, "now"),
    ],
)
def test_parameters_that_cannot_be_read_are_named(
    field: TestClient, query: dict[str, str], field_at_fault: str
) -> None:
    refused = problem(field.get(f"{URL}/coverage", params=query), 422, "invalid-request")
    assert refused["errors"][0]["field"] == field_at_fault


def test_what_would_take_too_long_is_refused_before_it_is_read(
    field: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.queries.sources.MAX_WORK_S", 1e-4)
    monkeypatch.setattr(
        "api.service.streams.Stream.snapshots", lambda *_: pytest.fail("sources were read")
    )
    refused = problem(field.get(f"{URL}/coverage"), 422, "invalid-request")
    assert "select fewer sources" in refused["detail"]


def test_a_stream_without_posts_and_one_that_binds_ids_are_refused(client: TestClient) -> None:
    client.put(URL, json={"params": PARAMS.to_dict()})
    problem(client.get(f"{URL}/coverage"), 422, "invalid-request")
    bound = {"params": PARAMS.to_dict(), "secret_ids": True, "bind_keys": True}
    client.put("/v1/streams/bound", json=bound)
    refused = problem(client.get("/v1/streams/bound/coverage"), 422, "invalid-request")
    assert "bind_keys" in refused["detail"]


def test_sources_settle_within_their_usual_gap_and_lateness() -> None:
    early, late, silent = Sender(), Sender(), Sender()
    for each, lateness, gap_us in ((early, 2.0, 10), (late, 50.0, 60), (silent, 9000.0, 1)):
        for post in range(5):
            each.take(post * gap_us * 1_000_000, lateness)
    assert usual_settle_s([early, late, silent], 60_000_000) == pytest.approx(60.0 + 48.0)
    assert usual_settle_s([], 0) == 0.0
    once = Sender()
    once.take(0, 9_000.0)
    assert usual_settle_s([once, early], 60_000_000) == 10.0  # whose gaps are not known yet
