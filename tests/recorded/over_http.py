"""Requests to an aggregator in this process, each scene to one of its own, and its answers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from fastapi.testclient import TestClient
from httpx2 import Response
from typer.testing import CliRunner

import decaysketch as ds
from api.app import create_app
from api.operations.keys import keys as key_commands
from api.settings import Settings
from tests.recorded.entries import Clock, Entry, Names, digest, plain, stopped_clock
from tests.recorded.material import (
    DECAYS,
    FIXED,
    NOW,
    PARAMS,
    QUESTIONS,
    STREAMS,
    Stream,
    chosen,
    decays_of,
    fixed,
    overflowing,
    rows,
)

__all__ = ["SCENES", "description"]

LOCAL = "http://localhost"
SKETCH = "application/octet-stream"
SKETCHES = "application/vnd.decaysketch.sketches"
JSON, LINES, ARROW = (
    "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
)  # fmt: skip

# Another one at each request, or said by the body already.
_LEFT_OUT = {"content-length", "x-request-id"}
# For browsers, the same on every answer: recorded of those alone whose ``whole`` head is.
_OF_EVERY_ANSWER = {
    "content-security-policy", "cross-origin-embedder-policy", "cross-origin-opener-policy",
    "cross-origin-resource-policy", "referrer-policy", "x-content-type-options",
}  # fmt: skip


class Talk:
    """A client that writes down what it asks and what it is answered."""

    def __init__(self, scene: str, client: TestClient, data: Path, clock: Clock) -> None:
        self.entries: list[Entry] = []
        self.data = data
        self._scene, self._client, self._clock, self._names = scene, client, clock, Names()

    def know(self, kind: str, drawn: str) -> None:
        """Something drawn at random that only the caller can tell as such."""
        self._names.know(kind, drawn)

    def tick(self) -> None:
        """A second passes: what is made from now on is younger."""
        self._clock.tick()

    def __call__(
        self,
        case: str,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        body: Any = None,
        sent: bytes | None = None,
        media: str | None = None,
        headers: dict[str, str] | None = None,
        whole: bool = False,
    ) -> Response:
        """Ask.

        Args:
            case: its name in this scene.
            params: of the query string.
            body: JSON, or bytes or text as they are.
            sent: what is sent for ``body``, where a library is free to write it otherwise.
            media: its type; JSON if not given.
            whole: record every header of the answer, and nothing of its body.
        """
        content: dict[str, Any] = {}
        asked: dict[str, Any] = {"request": f"{method} {path}"}
        if params:
            asked["params"] = params
        if body is not None:
            written = body if isinstance(body, (bytes, str)) else json.dumps(body)
            content["content"] = written if sent is None else sent
            asked["body"] = body
        if body is not None or media is not None:
            headers = {"content-type": JSON if media is None else media} | (headers or {})
        if headers:
            asked["headers"] = headers
        answer = self._client.request(method, path, params=params, headers=headers, **content)
        self._learn(path, answer)
        answered = {"status": answer.status_code, "headers": self._headers(answer, whole)}
        if answer.content and not whole:
            answered["body"] = _content(answer)
        self.entries.append(
            {
                "case": f"{self._scene}: {case}",
                "asked": self._names.instead(plain(asked)),
                "answered": self._names.instead(plain(answered)),
            }
        )
        return answer

    def _headers(self, answer: Response, whole: bool) -> dict[str, str]:
        left_out = _LEFT_OUT if whole else _LEFT_OUT | _OF_EVERY_ANSWER
        return {name: text for name, text in answer.headers.items() if name not in left_out}

    def _learn(self, path: str, answer: Response) -> None:
        """What the server draws: identities of streams, keys, and what follows from them. Tags
        are of this process or of this release, but for those of sketches, which are digests."""
        tag = answer.headers.get("etag")
        if tag is not None and not path.endswith("/sketch"):
            self._names.know("tag", tag)
        if answer.content and answer.headers.get("content-type") == JSON:
            self._learn_from(answer.json())

    def _learn_from(self, content: Any) -> None:
        if isinstance(content, dict):
            for field in ("incarnation", "key", "key_check", "prefix"):
                if isinstance(content.get(field), str):
                    self._names.know(field, content[field])
            if content.get("secret_ids") is True:  # by a key that is drawn
                self._names.know("fingerprint", content["fingerprint"])
                for each in (content, *content["sources"]):
                    self._names.know("digest", each["digest"])
        children = content.values() if isinstance(content, dict) else content
        if isinstance(content, (dict, list)):
            for each in children:
                self._learn_from(each)


def _content(answer: Response) -> Any:
    kind = answer.headers.get("content-type", "")
    if kind.split(";")[0].endswith("json"):
        content = answer.json()
        if isinstance(content, dict) and content.get("secret_ids") is True:
            for each in (content, *content["sources"]):  # ids that are drawn take more or less
                each |= {name: f"<{name} 1>" for name in ("bytes", "posted_bytes") if name in each}
        return content
    return answer.text if kind.startswith("text/plain") else digest(answer.content)


@contextmanager
def _talk(scene: str, **settings: Any) -> Iterator[Talk]:
    with stopped_clock() as clock, TemporaryDirectory() as folder:
        data = Path(folder) / "aggregator.sqlite3"
        app = create_app(Settings(data=str(data), **settings))
        with TestClient(app, base_url=LOCAL) as client:
            yield Talk(scene, client, data, clock)


def description() -> dict[str, Any]:
    """What ``GET /openapi.json`` answers."""
    with TemporaryDirectory() as folder:
        app = create_app(Settings(data=f"{folder}/aggregator.sqlite3"))
        with TestClient(app, base_url=LOCAL) as client:
            found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def _create(talk: Talk, name: str, creation: dict[str, Any], case: str | None = None) -> Response:
    return talk(case or f"create {name}", "PUT", f"/v1/streams/{name}", body=creation)


def _post(
    talk: Talk, case: str, name: str, sketch: Any, source: str | None = "a", **params: Any
) -> Response:
    content = sketch if isinstance(sketch, bytes) else sketch.to_bytes()
    given = {} if source is None else {"source": source}
    path = f"/v1/streams/{name}/sketches"
    return talk(case, "POST", path, params=given | params, body=content, media=SKETCH)


def _ask(talk: Talk, case: str, name: str, *queries: Any, **fields: Any) -> Response:
    path = f"/v1/streams/{name}/query"
    return talk(case, "POST", path, body={"queries": list(queries)} | fields)


def _query(stream: Stream, aggregate: str, decay: dict[str, Any], **fields: Any) -> dict[str, Any]:
    under = {"decay": decay} if decay else {}
    return {"aggregate": aggregate, **QUESTIONS[aggregate], **under, "now": NOW} | fields


# ----------------------------------------------------------------------------------------- streams

_SMALL = {"max_weight": 9}
_SUM = {"max_sum": 100, "capacity": 10}
_MEDIAN = {"max_count": 100, "capacity": 10}

_CREATIONS: dict[str, Any] = {
    "least": {"params": _SMALL},
    "integers in microseconds": {
        "params": _SMALL | {"value_type": "int64", "time_unit": "us", "id_mix": "none"}
    },
    "skew": {"params": _SMALL, "max_clock_skew_s": 2.5},
    "any time": {"params": _SMALL, "max_clock_skew_s": None},
    "secret ids": {"params": _SMALL, "secret_ids": True},
    "bound keys": {"params": _SMALL, "secret_ids": True, "bind_keys": True},
    "integral window": {
        "family": "integral", "params": _SMALL, "decay": {"kind": "window", "width": 60}
    },
    "integral fraction": {
        "family": "integral", "params": _SMALL,
        "decay": {"kind": "polynomial", "exponent": "1/3", "scale": 60},
    },
    "integral halving": {
        "family": "integral", "params": _SMALL, "decay": {"kind": "halving", "period": 2}
    },
    "integral expression": {
        "family": "integral", "params": _SMALL,
        "decay": {"kind": "expression", "text": "max(-2*x + w, 0)", "max_weight": 9},
    },
    "sum": {"family": "sum", "params": _SUM},
    "sum eager": {"family": "sum", "params": _SUM | {"eager_from_level": 2, "max_window": 60}},
    "median": {"family": "median", "params": _MEDIAN},
    "median integers": {"family": "median", "params": _MEDIAN | {"value_type": "int64"}},
}  # fmt: skip

_REFUSED_CREATIONS: dict[str, Any] = {
    "nothing": {},
    "no object": [],
    "no params": {"family": "decay"},
    "unknown family": {"family": "hll", "params": _SMALL},
    "null family": {"family": None, "params": _SMALL},
    "unknown field": {"params": _SMALL, "colour": "red"},
    "unknown parameter": {"params": _SMALL | {"colour": "red"}},
    "many unknown parameters": {"params": {f"p{k}": k for k in range(40)}},
    "weight in quotes": {"params": {"max_weight": "9"}},
    "weight of nothing": {"params": {"max_weight": 0}},
    "weight that is a fraction": {"params": {"max_weight": 1.5}},
    "ids too wide": {"params": _SMALL | {"id_bits": 80}},
    "capacity of nothing": {"params": _SMALL | {"capacity": 0}},
    "unknown value type": {"params": _SMALL | {"value_type": "float32"}},
    "unknown key": {"params": _SMALL | {"keyed_by": "secret"}},
    "negative skew": {"params": _SMALL, "max_clock_skew_s": -1},
    "bound keys that are not secret": {"params": _SMALL, "bind_keys": True},
    "decay of decay": {"params": _SMALL, "decay": {"kind": "none"}},
    "decay of sum": {"family": "sum", "params": _SUM, "decay": {}},
    "integral without decay": {"family": "integral", "params": _SMALL},
    "integral decay in words": {"family": "integral", "params": _SMALL, "decay": "none"},
    "integral copies": {
        "family": "integral", "params": _SMALL | {"copies": 3}, "decay": {"kind": "halving"}
    },
    "sum without bound": {"family": "sum", "params": {"capacity": 1}},
    "sum of nothing": {"family": "sum", "params": _SUM | {"max_sum": 0}},
    "sum of another kind": {"family": "sum", "params": _SUM | {"kind": "median"}},
    "sum window": {"family": "sum", "params": _SUM | {"max_window": -1}},
    "sum secret": {"family": "sum", "params": _SUM, "secret_ids": True},
    "median without bound": {"family": "median", "params": _SUM},
    "median unit": {"family": "median", "params": _MEDIAN | {"time_unit": "x" * 101}},
}  # fmt: skip

_REFUSED_FIXED: dict[str, Any] = {
    "nothing": {},
    "no kind": {"kind": ["window"]},
    "none": {"kind": "none"},
    "negative width": {"kind": "window", "width": -1},
    "unknown field": {"kind": "window", "width": 1, "colour": 2},
    "rate in words": {"kind": "exponential", "rate": "x"},
    "scale": {"kind": "polynomial", "exponent": 1, "scale": 0.5},
    "too slow": {"kind": "polynomial", "exponent": 1e-9},
    "rises": {"kind": "expression", "text": "x"},
    "no text": {"kind": "expression", "text": 5},
    "table": {"kind": "table", "digest": "00"},
}


def streams(talk: Talk) -> None:
    """Streams of every family: created, listed, read, refused, deleted."""
    for case, creation in _CREATIONS.items():
        _create(talk, case.replace(" ", "-"), creation, f"create {case}")
    for name, stream in STREAMS.items():
        _create(talk, f"of-{name}", stream.creation)
        _create(talk, f"of-{name}", stream.creation, f"create {name} again")
    for case, creation in _REFUSED_CREATIONS.items():
        _create(talk, "refused", creation, f"refused: {case}")
    for case, decay in _REFUSED_FIXED.items():
        creation = {"family": "integral", "params": _SMALL, "decay": decay}
        _create(talk, "refused", creation, f"refused decay: {case}")
    for case, name in {"dash first": "-", "space": "a b", "long": "a" * 101}.items():
        _create(talk, quote(name), {"params": _SMALL}, f"refused name: {case}")
    talk("not JSON", "PUT", "/v1/streams/refused", body="{")
    talk("not even text", "PUT", "/v1/streams/refused", body=b"\xff\xfe")
    talk("of another media type", "PUT", "/v1/streams/refused", body="a: 1", media="text/yaml")
    for name, other in {
        "of-decay": STREAMS["sum"].creation,
        "of-sum": STREAMS["median"].creation,
        "least": {"params": {"max_weight": 8, "seed": 3}},
        "integral-window": _CREATIONS["integral halving"],
        "secret-ids": {"params": _SMALL},
    }.items():
        _create(talk, name, other, f"conflict of {name}")
    for name in STREAMS:
        read = talk(f"read {name}", "GET", f"/v1/streams/of-{name}")
    known = {"if-none-match": read.headers.get("etag", "")}
    talk("read what is known", "GET", "/v1/streams/of-median", headers=known)
    talk("read another by that tag", "GET", "/v1/streams/of-sum", headers=known)
    talk("head", "HEAD", "/v1/streams/of-sum")
    talk("read no sources", "GET", "/v1/streams/of-sum", params={"sources": 0})
    talk("read too many sources", "GET", "/v1/streams/of-sum", params={"sources": 1001})
    talk("read what is not there", "GET", "/v1/streams/nope")
    listed = talk("list", "GET", "/v1/streams")
    known = {"if-none-match": listed.headers.get("etag", "")}
    talk("list what is known", "GET", "/v1/streams", headers=known)
    talk("list a page", "GET", "/v1/streams", params={"limit": 2})
    talk("list the next", "GET", "/v1/streams", params={"limit": 2, "after": "bound-keys"})
    talk("list the end", "GET", "/v1/streams", params={"after": "of-thrice"})
    talk("list nothing", "GET", "/v1/streams", params={"limit": 0})
    talk("delete", "DELETE", "/v1/streams/least")
    talk("delete again", "DELETE", "/v1/streams/least")
    talk("read what was deleted", "GET", "/v1/streams/least")
    talk("method", "PATCH", "/v1/streams/of-sum")


# ---------------------------------------------------------------------------------------- sketches


def sketches(talk: Talk) -> None:
    """Posts of sketches of every family, copies and refusals of them; downloads."""
    for name, stream in STREAMS.items():
        _create(talk, name, stream.creation)
        whole = stream.build(1)
        _post(talk, f"{name}: first", name, whole)
        _post(talk, f"{name}: copy", name, whole)
        _post(talk, f"{name}: of another source", name, stream.build(2, 100), "b")
        several = [stream.build(3, 150), whole, stream.build(4, 400)]
        framed = b"".join(
            len(blob).to_bytes(4, "little") + blob for blob in (s.to_bytes() for s in several)
        )
        path = f"/v1/streams/{name}/sketches"
        send: dict[str, Any] = {"params": {"source": "a"}, "media": SKETCHES}
        talk(f"{name}: several", "POST", path, body=framed, **send)
        talk(f"{name}: several, cut", "POST", path, body=framed[:-1], **send)
        talk(f"{name}: several, none", "POST", path, body=b"", **send)
        _post(talk, f"{name}: coarser", name, stream.coarser(5, 500))
        _post(talk, f"{name}: other parameters", name, stream.other(5, 500))
        another = STREAMS["sum" if stream.family != "sum" else "median"]
        _post(talk, f"{name}: another family", name, another.build(1))
        blob = stream.build(6, 600).to_bytes()
        for case, corrupt in {
            "nothing": b"",
            "a byte less": blob[:-1],
            "a byte more": blob + b"\0",
            "a bit turned": blob[:100] + bytes([blob[100] ^ 4]) + blob[101:],
            "another magic": b"DSKX" + blob[4:],
            "another version": blob[:4] + b"\x63" + blob[5:],
            "no sketch": b"DSKT" + bytes(40),
        }.items():
            _post(talk, f"{name}: corrupt, {case}", name, corrupt)
        talk(f"{name}: state", "GET", f"/v1/streams/{name}")
        found = talk(f"{name}: download", "GET", f"/v1/streams/{name}/sketch")
        talk(f"{name}: of a source", "GET", f"/v1/streams/{name}/sketch", params={"source": "b"})
        known = {"if-none-match": found.headers.get("etag", "")}
        talk(f"{name}: known", "GET", f"/v1/streams/{name}/sketch", headers=known)


def sources(talk: Talk) -> None:
    """Sources and posts of one stream: intervals, revocation, times, media, tokens."""
    _create(talk, "s", STREAMS["decay"].creation)
    path = "/v1/streams/s/sketches"
    one, two = chosen(1).to_bytes(), chosen(2, 100).to_bytes()
    _post(talk, "no source", "s", one, None)
    _post(talk, "empty source", "s", one, "")
    _post(talk, "source with a line end", "s", one, "a\nb")
    _post(talk, "unknown stream", "nope", one)
    _post(talk, "by fingerprint", "s", chosen(1).to_bytes(embed_params=False), "fingerprint")
    talk("media missing", "POST", path, params={"source": "a"}, body=one, media="")
    talk("media of others", "POST", path, params={"source": "a"}, body=one, media="text/csv")
    packed = gzip.compress(one)
    for case, encoding, sent in (
        ("gzip", "gzip", packed),
        ("gzip, damaged", "gzip", packed[:-5]),
        ("another encoding", "deflate", one),
    ):
        talk(
            case, "POST", path, params={"source": "packed"}, body=one, sent=sent, media=SKETCH,
            headers={"content-encoding": encoding},
        )  # fmt: skip
    _create(talk, "n", STREAMS["sum"].creation)
    part, next_part = (STREAMS["sum"].build(k, 200 * k) for k in (0, 1))
    _post(talk, "interval", "n", part, first=0, next=200)
    _post(talk, "interval again", "n", part, first=0, next=200)
    _post(talk, "interval with other bytes", "n", next_part, first=0, next=200)
    _post(talk, "interval that overlaps", "n", next_part, first=199, next=400)
    _post(talk, "interval after it", "n", next_part, first=200, next=400)
    _post(talk, "interval of nothing", "n", part, first=500, next=500)
    _post(talk, "interval without an end", "n", part, first=500)
    _post(talk, "interval of one number", "n", STREAMS["sum"].build(3, 600), first=600, next=601)
    released = "/v1/streams/n/sources/a/intervals"
    talk("release a part", "DELETE", released, params={"first": 0, "next": 100})
    talk("release", "DELETE", released, params={"first": 0, "next": 200})
    talk("release what is not named", "DELETE", released)
    _post(talk, "interval once released", "n", part, first=0, next=200)
    _post(talk, "of a", "s", one, "a")
    token = _post(talk, "of b", "s", two, "b").json().get("token", "")
    talk("read with sources", "GET", "/v1/streams/s")
    talk("read one source", "GET", "/v1/streams/s", params={"sources": 1, "after_source": "a"})
    after = {"decaysketch-after": token}
    talk("download after a post", "GET", "/v1/streams/s/sketch", headers=after)
    beyond = {"decaysketch-after": f"{token.rpartition(':')[0]}:999"}
    talk("download after a post to come", "GET", "/v1/streams/s/sketch", headers=beyond)
    talk("revoke", "POST", "/v1/streams/s/sources/a/revoke", media=JSON)
    talk("revoke by a form", "POST", "/v1/streams/s/sources/a/revoke")
    _post(talk, "of a revoked source", "s", one, "a")
    talk(
        "rows of a revoked source", "POST", "/v1/streams/s/observations", params={"source": "a"},
        body={"observations": [{"time": NOW, "id": 1}]},
    )  # fmt: skip
    talk("read without it", "GET", "/v1/streams/s")
    talk("download without it", "GET", "/v1/streams/s/sketch")
    talk("reinstate", "POST", "/v1/streams/s/sources/a/reinstate", media=JSON)
    talk("reinstate again", "POST", "/v1/streams/s/sources/a/reinstate", media=JSON)
    _post(talk, "of a reinstated source", "s", two, "a")
    talk("revoke of no stream", "POST", "/v1/streams/nope/sources/a/revoke", media=JSON)
    talk("download of no source", "GET", "/v1/streams/s/sketch", params={"source": "nope"})
    early = ds.DecaySketch(PARAMS)
    early.update([1.0], [1], [NOW + 311], [1])
    _post(talk, "a time ahead", "s", early)
    later = fixed(1)
    later.advance(NOW + 200)
    _create(talk, "f", STREAMS["integral"].creation)
    _post(talk, "a clock ahead", "f", later)
    _create(talk, "secret", {"params": PARAMS.to_dict(), "secret_ids": True})
    _post(talk, "of a secret stream", "secret", one)
    _create(talk, "ms", {"params": PARAMS.to_dict() | {"time_unit": "ms"}})
    _post(talk, "times of another unit", "ms", _in_ms())
    _ask(talk, "ask at another unit", "ms", _query(STREAMS["decay"], "count", DECAYS["none"]))
    talk("delete its stream", "DELETE", "/v1/streams/s")
    _create(talk, "s", STREAMS["decay"].creation, "create it anew")
    talk("a token of the one before", "GET", "/v1/streams/s/sketch", headers=after)
    for case, bad in {"nothing": "", "no token": "s", "of another": "t:00:1"}.items():
        headers = {"decaysketch-after": bad}
        talk(f"bad token: {case}", "GET", "/v1/streams/s/sketch", headers=headers)


def _in_ms() -> ds.DecaySketch:
    found, sketch = rows(1), ds.DecaySketch(replace(PARAMS, time_unit="ms"))
    sketch.update(found.values, found.weights, found.times, found.numbers)
    return sketch


# ------------------------------------------------------------------------------------ observations

_GOOD = {"time": NOW, "id": "good"}
_FAULTY: list[Any] = [
    [], "x", {"time": 1, "id": 1, "v": 2}, {"id": 1}, {"time": 1}, {"time": None, "id": 1},
    {"time": 1.0, "id": 1}, {"time": "1", "id": 1}, {"time": True, "id": 1},
    {"time": 2**62 + 1, "id": 1}, {"time": 2**63, "id": 1}, {"time": NOW + 900, "id": 1},
    {"time": 1, "id": 1 << 40}, {"time": 1, "id": -1}, {"time": 1, "id": 7.0},
    {"time": 1, "id": None}, {"time": 1, "id": {}}, {"time": 1, "id": []},
    {"time": 1, "id": ["a"] * 5}, {"time": 1, "id": ["a", 1.5]}, {"time": 1, "id": ""},
    {"time": 1, "id": "u" * 1025}, {"time": 1, "id": 1, "weight": 0},
    {"time": 1, "id": 1, "weight": 100}, {"time": 1, "id": 1, "weight": None},
    {"time": 1, "id": 1, "value": "20"}, {"time": 1, "id": 1, "value": 2**53 + 1},
]  # fmt: skip


def _table(seed: int, first: int, *, missing: bool, weights: bool) -> list[dict[str, Any]]:
    found = rows(seed, first, 60, missing=missing)
    table = [
        {"value": value, "weight": weight, "time": time, "id": number}
        for value, weight, time, number in zip(*(c.tolist() for c in found), strict=True)
    ]
    return table if weights else [{k: row[k] for k in ("value", "time", "id")} for row in table]


def _arrow(table: list[dict[str, Any]]) -> bytes:
    columns = pa.Table.from_pylist(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as out:
        out.write_table(columns)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _lines(table: list[Any]) -> str:
    return "\n".join(map(json.dumps, table))


def observations(talk: Talk) -> None:
    """Raw rows of every family in every form, verdicts on them, refusals of them."""

    def send(case: str, name: str, body: Any, media: str = JSON, **params: Any) -> None:
        path = f"/v1/streams/{name}/observations"
        sent = _arrow(body) if media == ARROW and isinstance(body, list) else None
        query = {"source": "gate"} | params
        talk(case, "POST", path, params=query, body=body, sent=sent, media=media)

    for name, stream in STREAMS.items():
        _create(talk, name, stream.creation)
        sampler = stream.family in ("sum", "median")
        whole = stream.family == "sum" or name == "thrice"

        def table(
            seed: int, first: int, sampler: bool = sampler, whole: bool = whole
        ) -> list[dict[str, Any]]:
            made = _table(seed, first, missing=not sampler, weights=not sampler)
            if whole:  # integers alone
                made = [row | {"value": row["value"] and int(2 * row["value"])} for row in made]
            return made

        send(f"{name}: JSON", name, {"observations": table(1, 0)})
        send(f"{name}: JSON again", name, {"observations": table(1, 0)})
        send(f"{name}: lines", name, _lines(table(2, 30)), LINES)
        send(f"{name}: columns", name, table(3, 60), ARROW, verdicts="counts")
        send(f"{name}: of another source", name, {"observations": table(1, 0)}, source="b")
        send(f"{name}: some at fault", name, _lines([*table(4, 100)[:2], *_FAULTY]), LINES)
        send(f"{name}: all at fault", name, {"observations": _FAULTY[:5]})
        talk(f"{name}: state", "GET", f"/v1/streams/{name}")
        talk(f"{name}: download", "GET", f"/v1/streams/{name}/sketch")
    send("keys of parts", "decay", _lines([_GOOD | {"id": ["t-1", k]} for k in range(3)]), LINES)
    send("no rows", "decay", {"observations": []})
    send("no document", "decay", [])
    send("not JSON", "decay", "{")
    send("a field more", "decay", {"observations": [_GOOD], "colour": 1})
    send("lines, one of them no JSON", "decay", f"{_lines([_GOOD])}\n{{\n\n", LINES)
    send("CSV", "decay", "time,id\n1,2\n", "text/csv")
    send("no columns", "decay", b"no stream", ARROW)
    send("columns of other names", "decay", [{"t": 1, "id": 1}], ARROW)
    send("columns of other types", "decay", [{"time": 1.5, "id": 1}], ARROW)
    send("columns, keys", "decay", [{"time": NOW, "id": each} for each in "abca"], ARROW)
    send("verdicts of another kind", "decay", {"observations": [_GOOD]}, verdicts="all")
    send("unknown stream", "nope", {"observations": [_GOOD]})
    send("other units", "decay", {"observations": [{"time": 1, "id": 5}]})
    for name, fields in {"secret": {}, "bound": {"bind_keys": True}}.items():
        _create(talk, name, {"params": PARAMS.to_dict(), "secret_ids": True} | fields)
        for source in ("gate", "b"):
            body = {"observations": [_GOOD, _GOOD | {"id": 7}]}
            send(f"{name} ids of {source}", name, body, source=source)
        talk(f"{name}: state", "GET", f"/v1/streams/{name}")


# ----------------------------------------------------------------------------------------- queries


def _filled(talk: Talk, *names: str) -> None:
    for name in names:
        _create(talk, name, STREAMS[name].creation)
        for seed, source in enumerate("ab"):
            _post(
                talk,
                f"post {name} of {source}",
                name,
                STREAMS[name].build(seed, 150 * seed),
                source,
            )


def _vary(talk: Talk, name: str, aggregate: str, decay: dict[str, Any]) -> None:
    variations: dict[str, dict[str, Any]] = {
        "confidence": {"confidence": 0.8},
        "in series": {"now": None, "times": [NOW, NOW + 100]},
    }
    if name == "thrice":
        variations["median of copies"] = {"combine": "median"}
    for title, fields in variations.items():
        query = _query(STREAMS[name], aggregate, decay, **fields)
        _ask(talk, f"{aggregate}, {title}", name, query)


def _questions(name: str) -> Callable[[Talk], None]:
    stream = STREAMS[name]
    decays = decays_of(stream)
    window = decays.get("window", {})

    def ask_everything(talk: Talk) -> None:
        _filled(talk, name)
        for aggregate in QUESTIONS:
            for title, decay in decays.items():
                query = _query(stream, aggregate, decay)
                if _ask(talk, f"{aggregate}, {title}", name, query).is_error:
                    break  # it has no such aggregate, under no decay
            else:
                _vary(talk, name, aggregate, decays.get("window", {}))
        everything = [_query(stream, "count", window), _query(stream, "selectivity", window)]
        _ask(talk, "several", name, *everything)
        _ask(talk, "of a source", name, *everything, sources=["b"])
        _ask(talk, "of all sources", name, *everything, sources=["b", "a", "b"])
        _ask(talk, "of an unknown source", name, *everything, sources=["b", "nope"])
        for title, now in {"long ago": -5, "before": NOW - 1_000, "later": NOW + 10**5}.items():
            _ask(talk, title, name, _query(stream, "count", window, now=now))
        _ask(talk, "now", name, _query(stream, "count", window, now=None))
        span = {"start": NOW, "stop": NOW + 100, "step": 40}
        _ask(talk, "range", name, _query(stream, "count", window, now=None, times=span))
        bounds = {"at_least": 2, "at_most": 5.5, "predicate": None}
        _ask(talk, "between", name, _query(stream, "selectivity", window, **bounds))
        _ask(
            talk,
            "above all",
            name,
            _query(stream, "selectivity", window, at_least=10**30, predicate=None),
        )
        _create(talk, "empty", stream.creation)
        asked = [_query(stream, each, window) for each in ("count", "selectivity")]
        _ask(talk, "empty stream", "empty", *asked)

    ask_everything.__name__ = f"queries of {name}"
    return ask_everything


_WINDOW = DECAYS["window"]
_PLAIN = {"aggregate": "sum", "decay": {"kind": "none"}, "now": NOW}


def _with(**decay: Any) -> dict[str, Any]:
    return _PLAIN | {"decay": decay}


_REFUSED_QUERIES: dict[str, Any] = {
    "nothing": {},
    "a word": "sum",
    "null": None,
    "unknown aggregate": _PLAIN | {"aggregate": "mode"},
    "aggregate of no name": _PLAIN | {"aggregate": 7},
    "no decay": {"aggregate": "sum", "now": 1},
    "null decay": _PLAIN | {"decay": None},
    "decay in words": _PLAIN | {"decay": "none"},
    "decay without kind": _with(),
    "unknown decay": _with(kind="gaussian"),
    "window without width": _with(kind="window"),
    "negative window": _with(kind="window", width=-1),
    "window in quotes": _with(kind="window", width="60"),
    "window and more": _with(kind="window", width=1, window=2),
    "rate missing": _with(kind="exponential"),
    "rate twice": _with(kind="exponential", rate=1, half_life=1),
    "rate of nothing": _with(kind="exponential", rate=0),
    "exponent missing": _with(kind="polynomial", scale=3),
    "scale of nothing": _with(kind="polynomial", exponent=1, scale=0),
    "no steps": _with(kind="piecewise", steps=[]),
    "half a step": _with(kind="piecewise", steps=[[1]]),
    "steps fall back": _with(kind="piecewise", steps=[[2, 1], [1, 1]]),
    "steps rise": _with(kind="piecewise", steps=[[1, 1], [2, 2]]),
    "rises beyond": _with(kind="piecewise", steps=[[1, 1]], beyond=2),
    "expression of no text": _with(kind="expression", text=1),
    "long expression": _with(kind="expression", text="1+" * 300),
    "rising expression": _with(kind="expression", text="x"),
    "negative expression": _with(kind="expression", text="1 - x"),
    "square of the weight": _with(kind="expression", text="w**2"),
    "huge expression": _with(kind="expression", text="9**9**9**9"),
    "expression that calls": _with(kind="expression", text="exit()"),
    "expression cut": _with(kind="expression", text="1/(1 +"),
    "a fraction of a time": _PLAIN | {"now": 1.0},
    "a time too far": _PLAIN | {"now": 2**62 + 1},
    "two times": _PLAIN | {"times": [NOW]},
    "no times": _PLAIN | {"now": None, "times": []},
    "a range backwards": _PLAIN | {"now": None, "times": {"start": 2, "stop": 1, "step": 1}},
    "a range of millions": _PLAIN | {"now": None, "times": {"start": 0, "stop": NOW, "step": 1}},
    "confidence of 1": _PLAIN | {"confidence": 1},
    "unknown combination": _PLAIN | {"combine": "mode"},
    "unknown field": _PLAIN | {"colour": "red"},
    "argument of another": _PLAIN | {"q": 0.5},
    "quantile of nothing": _PLAIN | {"aggregate": "quantile"},
    "quantile beyond": _PLAIN | {"aggregate": "quantile", "q": [0.5, 1.5]},
    "rank of null": _PLAIN | {"aggregate": "rank", "v": None},
    "phi of 1": _PLAIN | {"aggregate": "heavy_hitters", "phi": 1},
    "limit of nothing": _PLAIN | {"aggregate": "group_by", "limit": 0},
    "selectivity of nothing": _PLAIN | {"aggregate": "selectivity"},
    "bound and predicate": _PLAIN
    | {"aggregate": "selectivity", "at_least": 1, "predicate": "v > 1"},
    "predicate that is none": _PLAIN | {"aggregate": "selectivity", "predicate": "v + 1"},
    "predicate of another name": _PLAIN | {"aggregate": "selectivity", "predicate": "x > 1"},
    "predicate that calls": _PLAIN | {"aggregate": "selectivity", "predicate": "exit() > 1"},
    "predicate cut": _PLAIN | {"aggregate": "selectivity", "predicate": "v >"},
}


def refused_queries(talk: Talk) -> None:
    """What is no question, and what a family is not asked."""
    _filled(talk, "decay", "integral", "sum", "median")
    for case, query in _REFUSED_QUERIES.items():
        _ask(talk, case, "decay", _PLAIN, query)
    _ask(talk, "no queries", "decay")
    _ask(talk, "a field more", "decay", _PLAIN, colour=1)
    _ask(talk, "unknown stream", "nope", _PLAIN)
    _ask(talk, "no sources", "decay", _PLAIN, sources=[])
    _ask(talk, "bad token", "decay", _PLAIN, after="x")
    talk("not JSON", "POST", "/v1/streams/decay/query", body="{")
    talk("NaN", "POST", "/v1/streams/decay/query", body='{"queries": [{"now": NaN}]}')
    talk("media", "POST", "/v1/streams/decay/query", body="{}", media="text/plain")
    other = FIXED.to_dict() | {"half_life": 901}
    _ask(talk, "the fixed decay", "integral", _PLAIN | {"decay": FIXED.to_dict()})
    _ask(talk, "another than the fixed one", "integral", _PLAIN | {"decay": other})
    past = {"aggregate": "sum", "now": NOW - 4_000}
    _ask(talk, "before the clock", "integral", past, {"aggregate": "sum", "now": NOW}, past)
    for name in ("sum", "median"):
        _ask(talk, f"{name}: too far back", name, {**_PLAIN, "aggregate": "count"})
    few = overflowing()
    _create(talk, "few", {"params": few.params.to_dict()})
    _post(talk, "post few", "few", few)
    recent = _PLAIN | {"decay": {"kind": "window", "width": 1}}
    _ask(talk, "what was discarded", "few", recent, _PLAIN, recent)
    _create(talk, "frames", {"params": {"max_weight": 1, "time_unit": "frames"}})
    _ask(talk, "a unit without a clock", "frames", _PLAIN | {"now": None})


def groups(talk: Talk) -> None:
    """Several streams as one; questions by URL; entity tags."""
    _filled(talk, "decay", "integral", "sum", "median")
    _create(talk, "twin", STREAMS["decay"].creation)
    _post(talk, "post twin", "twin", chosen(7, 100), "a")
    _create(talk, "coarse", {"params": PARAMS.to_dict() | {"capacity": 20}})
    window = _query(STREAMS["decay"], "sum", _WINDOW)
    quantile = _query(STREAMS["decay"], "quantile", DECAYS["half-life"])

    def ask(case: str, names: Any, *queries: Any, **fields: Any) -> Response:
        body = {"streams": names, "queries": list(queries)} | fields
        return talk(case, "POST", "/v1/query", body=body)

    ask("two streams", ["decay", "twin"], window, quantile)
    ask("the other order", ["twin", "decay"], window, quantile)
    ask("one stream", ["twin"], window)
    ask("a source of them", ["decay", "twin"], window, sources=["a"])
    ask("a source that one lacks", ["decay", "twin"], window, sources=["b"])
    ask("with a coarser one", ["decay", "coarse"], window)
    ask("of two families", ["decay", "sum"], window)
    ask("no streams", [], window)
    ask("a stream of no name", ["decay", "a b"], window)
    ask("an unknown stream", ["decay", "nope"], window)
    ask("streams in words", "decay", window)
    ask("unsupported", ["sum"], _query(STREAMS["sum"], "mean", _WINDOW))
    ask("no queries", ["decay"])
    series = window | {"now": None, "times": [NOW - 100, NOW]}
    ask("in series", ["decay", "twin"], series)
    path = "/v1/streams/decay/query"
    text = json.dumps({"queries": [window]})
    found = talk("by URL", "GET", path, params={"request": text})
    tag = found.headers.get("etag", "")
    for case, known in {
        "known": tag, "known among others": f'"x", {tag}', "known weakly": f"W/{tag}",
        "known whatever": "*", "known otherwise": '"x"',
    }.items():  # fmt: skip
        headers = {"if-none-match": known}
        talk(f"{case} by URL", "GET", path, params={"request": text}, headers=headers)
        talk(f"{case} by POST", "POST", path, body={"queries": [window]}, headers=headers)
    talk("head by URL", "HEAD", path, params={"request": text})
    for case, bad in {"nothing": "", "cut": "{", "no queries": "{}", "long": " " * 16_001}.items():
        talk(f"by URL, {case}", "GET", path, params={"request": bad})
    talk("by URL, missing", "GET", path)
    live = "/v1/streams/decay/live"
    talk("live, head", "HEAD", live, params={"request": text})
    talk("live, too often", "GET", live, params={"request": text, "interval_s": 0.1})
    talk("live, no stream", "GET", "/v1/streams/nope/live", params={"request": text})


def curves(talk: Talk) -> None:
    """Decays shown, and what is none."""
    ages = {"start": 0, "stop": 1200, "points": 5}
    for case, decay in DECAYS.items():
        talk(case, "POST", "/v1/decays/curve", body={"decay": decay, "ages": ages})
    for case in ("unknown decay", "negative window", "steps rise", "rising expression",
                 "expression that calls", "square of the weight"):  # fmt: skip
        body = {"decay": _REFUSED_QUERIES[case]["decay"], "ages": ages}
        talk(case, "POST", "/v1/decays/curve", body=body)
    for case, other in {
        "no ages": {}, "ages backwards": {"start": 2, "stop": 1},
        "one age": {"stop": 5, "points": 1}, "ages from the library": {"stop": 2},
    }.items():  # fmt: skip
        talk(case, "POST", "/v1/decays/curve", body={"decay": _WINDOW, "ages": other})
    talk("nothing", "POST", "/v1/decays/curve", body={})
    talk("method", "GET", "/v1/decays/curve")


# ----------------------------------------------------------------------------------------- service


def service(talk: Talk) -> None:
    """The process itself, and whom it does not talk to."""
    talk("health", "GET", "/healthz")
    talk("health, whole head", "GET", "/healthz", whole=True)
    talk("reference, whole head", "GET", "/docs", whole=True)
    talk("page, whole head", "GET", "/", whole=True)
    talk("metrics, whole head", "GET", "/metrics", whole=True)
    talk("description, whole head", "HEAD", "/openapi.json", whole=True)
    talk("nowhere", "GET", "/v2")
    talk("nowhere, head", "HEAD", "/v2")
    talk("slash too many", "GET", "/v1/streams/")
    talk("method", "POST", "/healthz")
    talk("of a page", "GET", "/v1/streams", headers={"origin": "https://example.com"})
    talk("of a site", "GET", "/v1/streams", headers={"sec-fetch-site": "cross-site"})
    talk("by a proxy", "GET", "/v1/streams", headers={"x-forwarded-for": "10.0.0.1"})
    talk("by another name", "GET", "/v1/streams", headers={"host": "example.com"})


def limited(talk: Talk) -> None:
    """Small limits, and what goes beyond them."""
    _create(talk, "s", STREAMS["decay"].creation)
    _create(talk, "t", STREAMS["decay"].creation)
    _create(talk, "u", STREAMS["decay"].creation, "a stream too many")
    _post(talk, "a body too long", "s", bytes(5_000))
    _post(talk, "a sketch", "s", chosen(1))
    _post(talk, "a source too many", "s", chosen(1), "b")
    table = [_GOOD | {"id": k} for k in range(11)]
    talk(
        "rows too many", "POST", "/v1/streams/s/observations", params={"source": "a"},
        body={"observations": table},
    )  # fmt: skip
    _ask(talk, "queries too many", "s", _PLAIN, _PLAIN, _PLAIN)
    _ask(talk, "times too many", "s", _PLAIN | {"now": None, "times": [1, 2, 3, 4]})


def keys(talk: Talk) -> None:
    """Who may do what."""
    arguments = ["mint", "--role", "admin", "--data", str(talk.data)]
    root = CliRunner().invoke(key_commands, arguments).stdout.strip()
    talk.know("key", root)
    talk.know("prefix", root[3:11])

    def bearer(key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    admin = bearer(root)
    for path in ("/v1/streams", "/v1/keys", "/metrics", "/healthz", "/v2"):
        talk(f"{path} without a key", "GET", path)
    talk("a key of no form", "GET", "/v1/streams", headers=bearer("x"))
    talk("a key unknown", "GET", "/v1/streams", headers=bearer(f"ds_aaaaaaaa_{'A' * 43}"))
    made = {}
    for role in ("read", "write", "admin"):
        talk.tick()  # keys are listed by age
        body = {"role": role, "scope": ["ward-*"], "label": f"to {role}", "expires_in_s": 3600}
        new = talk(f"make {role}", "POST", "/v1/keys", body=body, headers=admin).json()
        made[role] = bearer(new.get("key", "")), new.get("prefix", "aaaaaaaa")
    for case, wrong in {
        "no role": {"scope": ["a"]},
        "unknown role": {"role": "owner", "scope": ["a"]},
        "no scope": {"role": "read", "scope": []},
        "scope of spaces": {"role": "read", "scope": ["a b"]},
        "an admin that is limited": {"role": "admin", "scope": ["a"], "max_streams": 1},
        "label of lines": {"role": "read", "scope": ["a"], "label": "a\nb"},
    }.items():
        talk(f"make, {case}", "POST", "/v1/keys", body=wrong, headers=admin)
    talk("list", "GET", "/v1/keys", headers=admin)
    talk("list of an admin of some", "GET", "/v1/keys", headers=made["admin"][0])
    wide = {"role": "read", "scope": ["*"]}
    talk("make a wider key", "POST", "/v1/keys", body=wide, headers=made["admin"][0])
    creation = STREAMS["decay"].creation
    blob = chosen(1).to_bytes()
    for role, (headers, prefix) in made.items():
        for name in ("ward-7", "other"):
            path = f"/v1/streams/{name}"
            talk(f"{role} creates {name}", "PUT", path, body=creation, headers=headers)
            talk(
                f"{role} posts to {name}", "POST", f"{path}/sketches", params={"source": "a"},
                body=blob, media=SKETCH, headers=headers,
            )  # fmt: skip
            talk(f"{role} reads {name}", "GET", f"{path}/sketch", headers=headers)
            talk(f"{role} asks {name}", "POST", f"{path}/query", body={"queries": [_PLAIN]},
                 headers=headers)  # fmt: skip
        talk(f"{role} lists streams", "GET", "/v1/streams", headers=headers)
        talk(f"{role} lists keys", "GET", "/v1/keys", headers=headers)
        talk(f"{role} deletes a stream", "DELETE", "/v1/streams/ward-7", headers=headers)
        talk(f"{role} revokes itself", "DELETE", f"/v1/keys/{prefix}", headers=headers)
    headers, prefix = made["read"]
    path = f"/v1/keys/{prefix}/rotate"
    talk("rotate", "POST", path, body={"grace_s": 0}, headers=admin)
    talk("rotate longer than a month", "POST", path, body={"grace_s": 10**9}, headers=admin)
    talk("the secret before", "GET", "/v1/streams", headers=headers)
    talk("revoke", "DELETE", f"/v1/keys/{prefix}", headers=admin)
    talk("revoke again", "DELETE", f"/v1/keys/{prefix}", headers=admin)
    talk("list at the end", "GET", "/v1/keys", headers=admin)


def _scene(play: Callable[[Talk], None], **settings: Any) -> Callable[[], list[Entry]]:
    def record() -> list[Entry]:
        with _talk(play.__name__.replace("_", " "), **settings) as talk:
            play(talk)
            return talk.entries

    return record


_SMALL_LIMITS = {
    "max_streams": 2, "max_sources": 1, "max_rows": 10, "max_queries": 2, "max_points": 3,
    "max_body_bytes": 4_000,
}  # fmt: skip

#: By name: what plays a scene and gives its entries.
SCENES: dict[str, Callable[[], list[Entry]]] = {
    play.__name__.replace("_", " "): _scene(play, **settings)
    for play, settings in (
        (streams, {}),
        (sketches, {}),
        (sources, {}),
        (observations, {}),
        *((_questions(name), {}) for name in STREAMS),
        (refused_queries, {}),
        (groups, {}),
        (curves, {}),
        (service, {}),
        (limited, _SMALL_LIMITS),
        (keys, {"auth": "keys"}),
    )
}
