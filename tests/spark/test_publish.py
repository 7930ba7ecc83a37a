"""Posting sketches: to the real aggregator, and to a network that misbehaves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest
import typer
from delivery_logs import delivery_log
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.cli.output import CommandError
from decaysketch.client import posting
from decaysketch.client.errors import ClientError
from decaysketch.client.posting import (
    Held,
    Poster,
    PostRefusedError,
    Receipt,
    UnreachableError,
    joined,
    source_name,
)
from decaysketch.errors import CorruptSketchError, ParameterError
from decaysketch.families import Recipe, recipe_of
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import ColumnMapping, KeyedBuilder, sketches_by_key
from spark_jobs import publish as program
from spark_jobs.publish import Published, publish, sources_of

MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value"
)
PARAMS = ds.SketchParams(max_weight=1, capacity=200, time_unit="us")
RECIPE = recipe_of(PARAMS)


def stored(
    path: Path,
    log: pa.Table,
    recipe: Recipe = RECIPE,
    by: Sequence[str] = ("path",),
    mapping: ColumnMapping = MAPPING,
) -> SketchTable:
    """A table of the sketches of a log."""
    builder = KeyedBuilder(recipe, mapping, by)
    builder.add(log)
    return SketchTable.write(path, pa.Table.from_batches(builder.batches()), recipe, by)


@contextmanager
def aggregator(folder: Path) -> Iterator[httpx2.Client]:
    from fastapi.testclient import TestClient

    from api.app import create_app
    from api.settings import Settings

    app = create_app(Settings(data=str(folder / "aggregator.sqlite3")))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def said(published: Sequence[Published]) -> dict[str, tuple[int, str | None]]:
    return {
        each.source: (each.receipt.new if each.receipt else -1, each.held) for each in published
    }


class TestWithTheAggregator:
    def test_sources_arrive_and_arriving_again_changes_nothing(self, tmp_path: Path) -> None:
        sources = sources_of(stored(tmp_path / "t", delivery_log(900)))
        with aggregator(tmp_path) as client:
            poster = Poster(client, "ward-7")
            assert poster.create_stream(RECIPE)["family"] == "decay"
            poster.create_stream(RECIPE)
            assert said(publish(poster, sources, RECIPE)) == {
                str(path): (1, "equal") for path in range(5)
            }
            first = client.get("/v1/streams/ward-7/sketch").content
            assert said(publish(poster, sources, RECIPE)) == {
                str(path): (0, "equal") for path in range(5)
            }
            assert client.get("/v1/streams/ward-7/sketch").content == first
            assert first == sketches_by_key(delivery_log(900), PARAMS, MAPPING)[()].to_bytes()
            with pytest.raises(PostRefusedError, match=r"rejected: 409: .*seed") as caught:
                poster.create_stream(recipe_of(replace(PARAMS, seed=1)))
            assert (caught.value.status, caught.value.kind) == (409, "stream-exists")

    @pytest.mark.parametrize(
        ("recipe", "value"),
        [
            (recipe_of(PARAMS, ds.decay.integral.exponential(half_life=60_000_000)), "value"),
            (recipe_of(SumParams(max_sum=1_000, capacity=50, time_unit="us")), "weight"),
            (recipe_of(MedianParams(max_count=1_000, capacity=50, time_unit="us")), "value"),
        ],
        ids=["integral", "sum", "median"],
    )
    def test_any_family(self, tmp_path: Path, recipe: Recipe, value: str) -> None:
        mapping = replace(MAPPING, value=value, source="source", sequence="msg")
        log = delivery_log(900)
        sources = sources_of(stored(tmp_path / "t", log, recipe, mapping=mapping))
        with aggregator(tmp_path) as client:
            poster = Poster(client, "ward-7")
            poster.create_stream(recipe)
            for new in (1, 0):
                told = said(publish(poster, sources, recipe))
                assert set(told.values()) == {(new, "equal")}
            whole = sketches_by_key(log, recipe, mapping)[()].to_bytes()
            assert client.get("/v1/streams/ward-7/sketch").content == whole
            with pytest.raises(PostRefusedError, match=r"rejected: 409: "):
                poster.create_stream(RECIPE)

    def test_a_source_of_several_keys_is_posted_in_one_body(self, tmp_path: Path) -> None:
        log = delivery_log(900)
        table = stored(tmp_path / "t", log, by=("path", "source"))
        sources = sources_of(table, ["path"])
        assert {len(sketches) for sketches in sources.values()} == {23}
        with aggregator(tmp_path) as client:
            # Of a larger capacity than the stream's: what is held is the sketch of the smaller one.
            recipe = recipe_of(replace(PARAMS, capacity=20))
            poster = Poster(client, "ward-7", max_body_bytes=4_000)
            poster.create_stream(recipe)
            assert said(publish(poster, sources, recipe)) == {
                str(path): (23, "equal") for path in range(5)
            }
            assert client.get("/v1/streams/ward-7").json()["posts"] == 5 * 23
        with pytest.raises(CommandError, match="no key 'room'; it has path, source"):
            sources_of(table, ["room"])

    def test_what_the_aggregator_holds_beyond_the_table_is_reported_and_replaced(
        self, tmp_path: Path
    ) -> None:
        log = delivery_log(900)
        before = sources_of(stored(tmp_path / "before", log))
        rows = [row for row in log.to_pylist() if (row["path"], row["msg"]) != (3, 0)]
        after = sources_of(
            stored(tmp_path / "after", pa.Table.from_pylist(rows, schema=log.schema))
        )
        assert [n for n in before if before[n][0].digest != after[n][0].digest] == ["3"]
        with aggregator(tmp_path) as client:
            poster = Poster(client, "ward-7")
            poster.create_stream(RECIPE)
            publish(poster, before, RECIPE)
            told = said(publish(poster, after, RECIPE))
            assert told == {str(path): (0, "equal") for path in range(5)} | {"3": (1, "more")}
            told = said(publish(poster, after, RECIPE, replacing=True))
            assert {held for _, held in told.values()} == {"equal"}
            held = client.get("/v1/streams/ward-7/sketch", params={"source": "3"}).content
            assert held == after["3"][0].blob

    def test_what_it_lost_is_reported(self, tmp_path: Path) -> None:
        [sketches] = sources_of(stored(tmp_path / "t", delivery_log(300), by=())).values()
        sketch = joined([sketches[0].blob], RECIPE)
        with aggregator(tmp_path) as client:
            poster = Poster(client, "ward-7")
            poster.create_stream(RECIPE)
            assert poster.check("all", sketch, RECIPE) == "missing"
            other = sketches_by_key(delivery_log(300, seed=2), PARAMS, MAPPING)[()]
            poster.post("all", [other.to_bytes()])
            assert poster.check("all", sketch, RECIPE) == "missing"
            receipt = poster.post("all", [sketches[0].blob])
            assert poster.check("all", sketch, RECIPE, receipt.token) == "more"

    def test_digests_of_a_few_among_many_sources(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(posting, "_SOURCES_LISTED", 4)
        [sketches] = sources_of(stored(tmp_path / "t", delivery_log(30), by=())).values()
        with aggregator(tmp_path) as client:
            poster = Poster(client, "ward-7")
            poster.create_stream(RECIPE)
            for number in range(25):
                poster.post(f"s{number:02}", [sketches[0].blob])
            there, absent = ["s01", "s24", "s11", "s12"], ["nobody", "s055", "t"]
            found = poster.digests([*there, *absent])
            assert {name: found[name] for name in there} == dict.fromkeys(there, sketches[0].digest)
            assert not set(absent) & set(found)
            assert "s19" not in found  # what nobody asked for is passed over

    def test_a_revoked_source_does_not_keep_the_others_out(self, tmp_path: Path) -> None:
        sources = sources_of(stored(tmp_path / "t", delivery_log(900)))
        with aggregator(tmp_path) as client:
            poster = Poster(client, "ward-7")
            poster.create_stream(RECIPE)
            publish(poster, sources, RECIPE)
            client.post("/v1/streams/ward-7/sources/2/revoke", json={})
            told = publish(poster, sources, RECIPE)
            assert said(told)["2"] == (-1, None)
            assert "403" in next(each.problem for each in told if each.source == "2")
            assert list(said(told).values()).count((0, "equal")) == 4


class TestTheProgram:
    def run(self, client: httpx2.Client, *arguments: object) -> Any:
        app = typer.Typer()
        app.command()(program.main)
        return CliRunner().invoke(app, list(map(str, arguments)))

    def test_it_reports_what_it_did(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = delivery_log(900)
        stored(tmp_path / "t", log)
        (tmp_path / "key").write_text("ds_1_2\n")
        with aggregator(tmp_path) as client:
            keys: list[Path | None] = []

            @contextmanager
            def connected(
                url: str, key: Path | None, timeout_s: float, ca_file: Path | None
            ) -> Iterator[httpx2.Client]:
                keys.append(key)
                yield client

            monkeypatch.setattr(program, "api_client", connected)
            asked = (tmp_path / "t", "--url", "http://localhost", "--stream", "ward-7")
            result = self.run(client, *asked, "--json", "--api-key-file", tmp_path / "key")
            assert (result.exit_code, keys) == (0, [tmp_path / "key"])
            told = json.loads(result.stdout)
            assert told.pop("seconds") > 0
            size = SketchTable.open(tmp_path / "t").counts["sketch_bytes"]
            assert told == {
                "stream": "ward-7", "sources": 5, "sketches": 5, "bytes": size, "new": 5,
                "equal": 5, "more": [], "missing": [], "refused": {},
            }  # fmt: skip
            assert "has exactly the posted rows of 5 sources" in result.stderr
            client.post("/v1/streams/ward-7/sources/2/revoke", json={})
            result = self.run(client, *asked)
            assert (result.exit_code, "was rejected: 403" in result.stderr) == (1, True)
            result = self.run(client, *asked, "--replace", "--no-verify")
            assert (result.exit_code, "cannot be combined" in result.stderr) == (1, True)


class Network:
    """Answers requests from a script: statuses, or exceptions to raise."""

    def __init__(self, *script: int | Exception) -> None:
        self.script = list(script)
        self.requests: list[httpx2.Request] = []
        self.waits: list[float] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        answer = {
            "stream": "a stream", "source": request.url.params.get("source"), "token": "t",
            "sketches": [{"duplicate": False}], "detail": "a reason",
        }  # fmt: skip
        return httpx2.Response(step, json=answer, headers={"retry-after": "3"})

    def poster(self, attempts: int = 4) -> Poster:
        client = httpx2.Client(
            transport=httpx2.MockTransport(self), base_url="http://aggregator.test"
        )
        return Poster(client, "a stream", attempts=attempts, wait=self.waits.append)


class TestWithABadNetwork:
    def test_what_may_pass_is_tried_again(self) -> None:
        network = Network(503, httpx2.ReadTimeout("late"), 429, 200)
        receipt = network.poster().post("gateway 1/2", [b"sketch"])
        assert (receipt.source, receipt.size, receipt.new) == ("gateway 1/2", 6, 1)
        assert len(network.waits) == 3
        assert network.waits[0] == 3.0  # as the server asked
        assert 0 <= network.waits[1] <= 1.0  # of the back-off alone: there was no answer
        [url] = {str(request.url) for request in network.requests}
        assert url.startswith("http://aggregator.test/v1/streams/a%20stream/sketches?source=")
        assert network.requests[-1].url.params["source"] == "gateway 1/2"
        assert network.requests[-1].headers["content-type"] == "application/octet-stream"
        assert network.requests[-1].content == b"sketch"

    def test_what_is_early_is_sent_again_when_its_time_has_come(self) -> None:
        class Early(Network):
            def __call__(self, request: httpx2.Request) -> httpx2.Response:
                answer = super().__call__(request)
                early = {"type": "urn:decaysketch:problem:clock-ahead", "detail": "clock is 9"}
                return (
                    httpx2.Response(429, json=early, headers={"retry-after": "17"})
                    if answer.status_code == 429
                    else answer
                )

        network = Early(429, 200)
        assert network.poster().post("a", [b"sketch"]).new == 1
        assert network.waits == [17.0]

    def test_a_body_that_is_too_long_is_halved(self) -> None:
        network = Network(413, 200, 413, 200, 200)
        blobs = [b"a", b"bc", b"def", b"g"]
        assert network.poster().post("s", blobs).sketches == 4
        bodies = [request.content for request in network.requests]
        one, two = b"\1\0\0\0a\2\0\0\0bc", b"\3\0\0\0def\1\0\0\0g"
        assert bodies == [one + two, one, two, b"def", b"g"]
        network = Network(413)
        with pytest.raises(PostRefusedError, match="was rejected: 413"):
            network.poster().post("s", [b"a"])

    def test_a_refusal_is_final_and_says_why(self) -> None:
        network = Network(422)
        with pytest.raises(PostRefusedError, match="was rejected: 422: a reason"):
            network.poster().post("a", [b""])
        assert len(network.requests) == 1

    def test_patience_ends(self) -> None:
        network = Network(*[httpx2.ConnectError("nobody there")] * 4)
        with pytest.raises(UnreachableError, match="failed 4 times: ConnectError: nobody there"):
            network.poster().post("a", [b""])

    def test_what_concerns_every_source_ends_the_program(self, tmp_path: Path) -> None:
        sources = sources_of(stored(tmp_path / "t", delivery_log(300)))
        network = Network(200, 401, *[200] * 9)
        with pytest.raises(CommandError, match=r"401.*; 1 of 5 sources were posted before"):
            publish(network.poster(), sources, RECIPE, concurrency=1)


class Holding(Poster):
    """An aggregator that takes everything, and says what it holds."""

    def __init__(self, digests: dict[str, str]) -> None:
        self.told = digests

    def post(self, source: str, blobs: Sequence[bytes]) -> Receipt:
        return Receipt(source, len(blobs), sum(map(len, blobs)), 0, "")

    def digests(self, sources: Iterable[str]) -> dict[str, str]:
        return self.told

    def check(self, source: str, sketch: Any, recipe: Recipe, token: str = "") -> Held:
        return "missing"


class TestWhatIsCompared:
    @pytest.mark.parametrize("digest", [None, "of another sketch"])
    def test_is_the_sketch_and_not_what_the_table_says_of_it(
        self, tmp_path: Path, digest: Any
    ) -> None:
        [[right]] = sources_of(stored(tmp_path / "t", delivery_log(30), by=())).values()
        wrong = {"all": [replace(right, digest=digest)]}
        for told, held in (({"all": digest}, "missing"), ({"all": right.digest}, "equal")):
            assert said(publish(Holding(told), wrong, RECIPE)) == {"all": (0, held)}

    def test_nothing_more_is_begun_after_an_error(self, tmp_path: Path) -> None:
        sources = sources_of(stored(tmp_path / "t", delivery_log(300), by=("source",)))
        tried: list[str] = []

        class Broken(Holding):
            def post(self, source: str, blobs: Sequence[bytes]) -> Receipt:
                tried.append(source)
                if len(tried) > 1:
                    time.sleep(2)  # long enough for the fault of the first to be noticed
                raise ValueError("a fault of the program")

        assert len(sources) > 10
        with pytest.raises(ValueError, match="a fault"):
            publish(Broken({}), sources, RECIPE, concurrency=1)
        assert len(tried) <= 3


class TestMisbehaviour:
    def test_a_header_that_cannot_be_sent_is_not_shown(self) -> None:
        for fault in (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol):
            poster = Network(fault("Illegal header value b'k-1'")).poster()
            with pytest.raises(ClientError, match=r"cannot be sent: \w+$") as caught:
                poster.stream_state()
            assert "k-1" not in str(caught.value)

    def test_an_answer_that_cannot_be_read_is_asked_for_again(self) -> None:
        network = Network(httpx2.DecodingError("no gzip"), httpx2.TooManyRedirects("round"), 200)
        assert network.poster().post("s", [b"a"]).sketches == 1
        assert len(network.waits) == 2

    def test_a_name_and_password_are_not_shown(self) -> None:
        client = httpx2.Client(
            transport=httpx2.MockTransport(Network(httpx2.ConnectError("nobody"))),
            base_url="http://me:hunter2@aggregator.test:80/base",
        )
        with pytest.raises(UnreachableError) as caught:
            Poster(client, "s", attempts=1).stream_state()
        assert "hunter2" not in str(caught.value)
        assert "http://aggregator.test" in str(caught.value)

    def test_at_least_one_attempt(self) -> None:
        with pytest.raises(ParameterError, match="attempts is 0"):
            Network().poster(attempts=0)

    def test_lists_that_do_not_go_on_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(posting, "_SOURCES_LISTED", 2)

        def answer(request: httpx2.Request) -> httpx2.Response:
            listed = [{"source": name, "digest": name} for name in "ab"]
            return httpx2.Response(200, json={"name": "s", "sources": listed})

        client = httpx2.Client(
            transport=httpx2.MockTransport(answer), base_url="http://aggregator.test"
        )
        poster = Poster(client, "s")
        assert poster.digests(["c", "d"]) == {"a": "a", "b": "b"}
        with pytest.raises(ClientError, match="lists 'b' among the sources after 'b'"):
            poster.sources()

    @pytest.mark.parametrize(
        ("body", "media", "error"),
        [
            (b"<html>portal</html>", "text/html", UnreachableError),
            (b"<html>portal</html>", "application/octet-stream", CorruptSketchError),
            (ds.DecaySketch(PARAMS).to_bytes(), "application/octet-stream", CorruptSketchError),
        ],
        ids=["page", "no sketch", "another digest"],
    )
    def test_a_body_that_is_not_the_sketch(
        self, body: bytes, media: str, error: type[Exception]
    ) -> None:
        def answer(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, content=body, headers={"content-type": media, "etag": "x"})

        client = httpx2.Client(
            transport=httpx2.MockTransport(answer), base_url="http://aggregator.test"
        )
        with pytest.raises(error):
            Poster(client, "s", attempts=1).sketch("a")

    @pytest.mark.parametrize(
        ("script", "error"),
        [
            ((204, 503, 204), None),
            ((503, 204), UnreachableError),
            ((204, 503, 503), UnreachableError),
        ],
        ids=["reinstated at last", "revoked for all that is known", "left revoked"],
    )
    def test_what_was_emptied_is_admitted_again(
        self, script: tuple[int, ...], error: type[Exception] | None
    ) -> None:
        network = Network(*script)
        with nullcontext() if error is None else pytest.raises(error):
            network.poster(attempts=1).clear("a")
        assert not network.script
        verbs = [request.url.path.rpartition("/")[2] for request in network.requests]
        assert verbs == ["revoke"] + ["reinstate"] * (len(script) - 1)


def test_a_source_that_was_left_revoked_is_admitted_again(tmp_path: Path) -> None:
    sources = sources_of(stored(tmp_path / "t", delivery_log(300)))
    with aggregator(tmp_path) as client:
        poster = Poster(client, "ward-7")
        poster.create_stream(RECIPE)
        publish(poster, sources, RECIPE)
        client.post("/v1/streams/ward-7/sources/2/revoke", json={})
        for replacing in (False, True):
            told = publish(poster, sources, RECIPE, replacing=replacing)
            [problem] = [each.problem for each in told if each.problem]
            assert problem.endswith("; --reinstate accepts it again")
        told = publish(poster, sources, RECIPE, reinstating=True)
        assert {held for _, held in said(told).values()} == {"equal"}
        assert poster.sources() == sorted(sources)
        assert poster.sketch("2") == (sources["2"][0].blob, sources["2"][0].digest)
        assert poster.sketch("nobody") is None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ((), "all"),
        (("",), "%empty"),
        (("all",), "%all"),
        (("%all",), "%25all"),
        (("%empty",), "%25empty"),
        (("all", ""), "all/%empty"),
        ((7,), "7"),
        (("gw/1", 2), "gw%2F1/2"),
        (("gw", "1/2"), "gw/1%2F2"),
        ((b"\x01\xff",), "01ff"),
    ],
)
def test_every_key_has_a_name_of_its_own(key: tuple[object, ...], name: str) -> None:
    assert source_name(key) == name


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_a_time_has_one_name_in_every_zone(zone: str) -> None:
    [time] = pa.array([0], pa.timestamp("us", zone)).to_pylist()
    assert source_name((time,)) == "1970-01-01 00:00:00+00:00"
    assert source_name((time.replace(tzinfo=None),)) == str(time.replace(tzinfo=None))


def test_a_null_cannot_name_a_source() -> None:
    with pytest.raises(ParameterError, match="null"):
        source_name((1, None))
