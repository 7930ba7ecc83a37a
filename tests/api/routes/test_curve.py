"""The curve of a decay, and why a text is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from service import problem

from decaysketch import decay

URL = "/v1/decays/curve"


def curve(client: TestClient, chosen: Any, **ages: Any) -> Response:
    return client.post(URL, json={"decay": chosen, "ages": {"stop": 600} | ages})


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({"kind": "none"}, "none()"),
        ({"kind": "window", "width": 300}, "window(300)"),
        ({"kind": "exponential", "half_life": 60}, "exponential(half_life=60)"),
        ({"kind": "exponential", "rate": 0.01}, "exponential(rate=0.01)"),
        ({"kind": "polynomial", "exponent": 1.5, "scale": 60}, "polynomial(1.5, scale=60)"),
        ({"kind": "piecewise", "steps": [[60, 1], [300, 0.5]]}, None),
        ({"kind": "expression", "text": "1/(1 + log(1+x/60))"}, "1/(1 + log(1 + x/60))"),
        ({"kind": "expression", "text": "where(x <= 60, 1, 0.5)"}, None),
    ],
)
def test_it_is_the_library_s(client: TestClient, chosen: dict[str, Any], text: str | None) -> None:
    content = curve(client, chosen, points=121).json()
    assert content.keys() == {"text", "ages", "weights"}
    assert content["ages"] == np.linspace(0, 600, 121).tolist()
    expected = decay.from_dict(chosen)
    assert content["weights"] == expected(np.linspace(0, 600, 121)).tolist()
    if text is not None:
        assert content["text"] == text
    if chosen["kind"] == "expression":
        assert decay.expression(content["text"]) == expected


def test_it_may_be_a_text(client: TestClient) -> None:
    body = {"decay": "window(1min)", "ages": {"stop": 600}}
    expected = curve(client, {"kind": "window", "width": 60_000}).json()
    assert client.post(URL, json=body | {"time_unit": "ms"}).json() == expected
    assert client.post(URL, json=body | {"decay": "window(60000)"}).json() == expected
    (fault,) = problem(client.post(URL, json=body), 422, "invalid-request")["errors"]
    assert fault["field"] == "decay"
    assert "'min' at character 8; expected no unit" in fault["reason"]


def test_ages_are_chosen(client: TestClient) -> None:
    chosen = {"kind": "window", "width": 7.5}
    content = curve(client, chosen, start=5, stop=10, points=3).json()
    assert content["ages"] == [5, 7.5, 10]
    assert content["weights"] == [1, 1, 0]
    assert len(curve(client, chosen).json()["ages"]) == 200
    assert len(curve(client, chosen, points=2000).json()["ages"]) == 2000


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ({"kind": "expression", "text": "x"}, "rises"),
        ({"kind": "expression", "text": "1 - x"}, "expected a weight >= 0"),
        ({"kind": "expression", "text": "exit()"}, "has 'exit' at character 0"),
        ({"kind": "expression", "text": "1 +"}, "cannot be read"),
        ({"kind": "expression", "text": "9**9**9**9"}, "expected at most 256"),
        ({"kind": "expression", "text": "v > 1"}, "has 'v' at character 0"),
        ({"kind": "window", "width": -1}, "width is -1"),
        ({"kind": "polynomial", "exponent": 0}, "exponent is 0"),
        ({"kind": "piecewise", "steps": [[1, 1], [2, 2]]}, "steps[1] weight is 2"),
    ],
)
def test_what_is_no_decay_is_told_why(
    client: TestClient, chosen: dict[str, Any], named: str
) -> None:
    content = problem(curve(client, chosen), 422, "invalid-request")
    (fault,) = content["errors"]
    assert fault["field"] == "decay"
    assert named in fault["reason"]
    assert named in content["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ages": {"stop": 1}}, "decay"),
        ({"decay": {"kind": "none"}}, "ages"),
        ({"decay": {"kind": "none"}, "ages": {}}, "ages.stop"),
        ({"decay": {"kind": "gaussian"}, "ages": {"stop": 1}}, "decay.kind"),
        ({"decay": {"kind": "none"}, "ages": {"stop": 0}}, "ages"),
        ({"decay": {"kind": "none"}, "ages": {"start": 2, "stop": 1}}, "ages"),
        ({"decay": {"kind": "none"}, "ages": {"start": -1, "stop": 1}}, "ages"),
        ({"decay": {"kind": "none"}, "ages": {"stop": 2**63 + 1}}, "ages"),
        ({"decay": {"kind": "none"}, "ages": {"stop": 1e300}}, "ages"),
        ({"decay": {"kind": "none"}, "ages": {"stop": "1"}}, "ages.stop"),
        ({"decay": {"kind": "none"}, "ages": {"stop": 1, "points": 1}}, "ages.points"),
        ({"decay": {"kind": "none"}, "ages": {"stop": 1, "points": 2001}}, "ages.points"),
        ({"decay": {"kind": "none"}, "ages": {"stop": 1, "points": 2.5}}, "ages.points"),
        ({"decay": {"kind": "none"}, "ages": {"stop": 1}, "now": 1}, "now"),
    ],
)
def test_malformed(client: TestClient, body: Any, field: str) -> None:
    (fault,) = problem(client.post(URL, json=body), 422, "invalid-request")["errors"]
    assert fault["field"] == field


def test_other_media_types(client: TestClient) -> None:
    refused = client.post(URL, content=b"{}", headers={"content-type": "text/plain"})
    problem(refused, 415, "unsupported-media-type")
