"""Everything is answered as it was when it was recorded: see ``python -m tests.recorded``."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.recorded import in_python, interface, on_the_command_line, over_http
from tests.recorded.entries import Entry, compare, differences, read
from tests.recorded.interface import changes
from tests.recorded.material import DECAYS, QUESTIONS, STREAMS

KINDS = ("http", "python", "command", "sql")


def check(recorded: list[Entry], found: list[Entry]) -> None:
    lines = compare(recorded, found)
    assert not lines, f"{len(lines)} differences\n" + "\n".join(lines[:200])


@pytest.mark.parametrize("scene", over_http.SCENES)
def test_over_http(scene: str) -> None:
    recorded = [each for each in read("http") if each["case"].startswith(f"{scene}: ")]
    check(recorded, over_http.SCENES[scene]())


def test_in_python() -> None:
    check(read("python"), in_python.record())


def test_on_the_command_line() -> None:
    check(read("command"), on_the_command_line.record())


def test_the_description_only_grows() -> None:
    """What was added is printed, for whoever asks by ``-rP``."""
    found = changes(interface.read(), over_http.description())
    print(*(each for each in found if each.allowed), sep="\n")
    broken = [str(each) for each in found if not each.allowed]
    assert not broken, "\n".join(broken)


# -------------------------------------------------------------------------------- of the record


def texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, (dict, list)):
        for each in content.values() if isinstance(content, dict) else content:
            yield from texts(each)


def leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(content, (dict, list)) and content:
        children = content.items() if isinstance(content, dict) else enumerate(content)
        for key, child in children:
            yield from leaves(child, (*path, key))
    else:
        yield path


def altered(value: Any) -> Any:
    """By as little as must be noticed."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * (1 + 1e-6) if value else 1e-6
        case str():
            return f"{value[:-1]}{chr(ord(value[-1]) ^ 1)}" if value else "x"
        case _:
            return [value]


class TestTheRecord:
    def test_is_of_many_cases_each_named_once(self) -> None:
        sizes = {}
        for kind in KINDS:
            cases = [each["case"] for each in read(kind)]
            assert len(set(cases)) == len(cases)
            sizes[kind] = len(cases)
        assert sizes["http"] >= 500
        assert sizes["python"] >= 200
        assert min(sizes.values()) >= 40

    def test_asks_every_family_for_every_aggregate(self) -> None:
        """As the description has them; those that came after the record was begun are asked on
        every road by ``tests/query/test_catalog.py``."""
        schemas = interface.read()["components"]["schemas"]
        fields = [each.get("properties", {}) for each in schemas.values()]
        aggregates, families = (
            {
                name
                for each in fields
                if asked in each
                for name in each.get(told, {}).get("enum", [each.get(told, {}).get("const")])
            }
            for asked, told in (("decay", "aggregate"), ("params", "family"))
        )
        assert aggregates - {None} >= set(QUESTIONS)
        assert families - {None} >= {stream.family for stream in STREAMS.values()}
        answered: dict[tuple[str, str], set[int]] = {}
        for each in read("http"):
            scene, _, case = each["case"].partition(": ")
            name, aggregate = scene.removeprefix("queries of "), case.partition(",")[0]
            if name in STREAMS and aggregate in QUESTIONS:
                assert each["asked"]["body"]["queries"][0]["aggregate"] == aggregate
                status = each["answered"]["status"]
                answered.setdefault((name, aggregate), set()).add(status)
        assert answered.keys() == {(name, each) for name in STREAMS for each in QUESTIONS}
        assert all(statuses in ({200}, {422}) for statuses in answered.values())
        refused = {key for key, statuses in answered.items() if statuses == {422}}
        assert {name for name, _ in refused} == {"sum", "median"}
        assert len(refused) == 8 + 1

    def test_asks_in_every_manner(self) -> None:
        queries = [
            query
            for each in read("http")
            if each["answered"]["status"] == 200
            and isinstance(body := each["asked"].get("body"), dict)
            for query in body.get("queries", ())
        ]
        decays = [query["decay"] for query in queries if "decay" in query]
        kinds = {decay["kind"] for decay in decays if isinstance(decay, dict)}
        assert kinds == {decay["kind"] for decay in DECAYS.values()}
        named = {name for query in queries for name, value in query.items() if value is not None}
        assert named >= {"confidence", "combine", "times", "predicate", "at_least", "at_most"}
        problems = {
            each["answered"]["body"]["type"]
            for each in read("http")
            if isinstance(body := each["answered"].get("body"), dict) and "type" in body
        }
        assert len(problems) >= 20
        statuses = {each["answered"]["status"] for each in read("http")}
        assert statuses >= {200, 201, 204, 304, 401, 403, 404, 405, 409, 413, 415, 422, 429, 507}

    def test_replaces_only_what_is_drawn_at_random(self) -> None:
        replaced = {
            name
            for kind in KINDS
            for text in texts(read(kind))
            for name in re.findall(r"<([a-z_]+) \d+>", text)
        }
        assert replaced == {
            "bytes", "digest", "fingerprint", "incarnation", "key", "key_check", "posted_bytes",
            "prefix", "tag",
        }  # fmt: skip

    @pytest.mark.parametrize("kind", KINDS)
    def test_notices_a_digit(self, kind: str) -> None:
        """Of each case one value is another, of every case another one; nothing else is said."""
        recorded = read(kind)
        for number, entry in enumerate(recorded):
            paths = [("answered", *path) for path in leaves(entry["answered"])]
            path = paths[number % len(paths)]
            other = copy.deepcopy(entry)
            holder = other
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = altered(holder[path[-1]])
            (line,) = differences(entry, other)
            assert line.startswith("answered")
            if number % 50 == 0:
                found = [*recorded[:number], other, *recorded[number + 1 :]]
                assert compare(recorded, found) == [f"{entry['case']}: {line}"]

    def test_notices_cases_that_are_missing_new_or_moved(self) -> None:
        recorded = read("command")
        first, second, third = recorded[:3]
        assert compare([first, second], [first]) == [f"{second['case']}: recorded, now not asked"]
        assert compare([first], [first, third]) == [f"{third['case']}: asked, but not recorded"]
        assert len(compare([first, second], [second, first])) == 1
        assert compare(recorded, recorded) == []

    def test_compares_exactly_what_is_not_computed(self) -> None:
        near, far = 1 + 1e-12, 1 + 1e-8
        assert list(differences({"value": 1.0}, {"value": near})) == []
        assert list(differences({"weights": [1.0]}, {"weights": [near]})) == []
        for recorded, found in (
            ({"value": 1.0}, {"value": far}),
            ({"value": 1.0}, {"value": 1}),
            ({"q": 1.0}, {"q": near}),
            ({"now": 1}, {"now": True}),
            ({"value": [1.0]}, {"value": [1.0, 1.0]}),
            ({"value": None}, {}),
        ):
            assert len(list(differences(recorded, found))) == 1


# ------------------------------------------------------------------------- of the description

QUERY = "/v1/streams/{name}/query"


def _removed_path(found: dict[str, Any]) -> None:
    del found["paths"][QUERY]


def _removed_status(found: dict[str, Any]) -> None:
    del found["paths"][QUERY]["post"]["responses"]["422"]


def _removed_field(found: dict[str, Any]) -> None:
    del found["components"]["schemas"]["EstimateModel"]["properties"]["stderr"]


def _removed_aggregate(found: dict[str, Any]) -> None:
    found["components"]["schemas"]["ScalarQuery"]["properties"]["aggregate"]["enum"].pop()


def _needed_field(found: dict[str, Any]) -> None:
    schema = found["components"]["schemas"]["QuantileQuery"]
    schema["properties"]["unit"] = {"type": "string"}
    schema["required"].append("unit")


def _needed_parameter(found: dict[str, Any]) -> None:
    parameter = {"in": "query", "name": "unit", "required": True, "schema": {"type": "string"}}
    found["paths"][QUERY]["post"]["parameters"].append(parameter)


def _other_type(found: dict[str, Any]) -> None:
    found["components"]["schemas"]["EstimateModel"]["properties"]["rows"]["type"] = "number"


def _narrowed(found: dict[str, Any]) -> None:
    found["components"]["schemas"]["EstimateModel"]["properties"]["rows"]["maximum"] = 9


def _other_words(found: dict[str, Any]) -> None:
    found["paths"][QUERY]["post"]["summary"] = "Ask"


@pytest.mark.parametrize(
    "change",
    [
        _removed_path, _removed_status, _removed_field, _removed_aggregate, _needed_field,
        _needed_parameter, _other_type, _narrowed, _other_words,
    ],
)  # fmt: skip
def test_a_description_that_takes_something_back(change: Callable[[Any], None]) -> None:
    recorded, found = interface.read(), interface.read()
    change(found)
    assert [each for each in changes(recorded, found) if not each.allowed]


def test_a_description_that_says_more() -> None:
    recorded, found = interface.read(), interface.read()
    schemas = found["components"]["schemas"]
    found["paths"]["/v1/elsewhere"] = copy.deepcopy(found["paths"][QUERY])
    parameter = {"in": "query", "name": "unit", "schema": {"type": "string"}}
    found["paths"][QUERY]["post"]["parameters"].append(parameter)
    schemas["FrequencyQuery"] = copy.deepcopy(schemas["RankQuery"])
    schemas["QuantileQuery"]["properties"]["unit"] = {"type": "string"}
    schemas["ScalarQuery"]["properties"]["aggregate"]["enum"].append("mode")
    schemas["EstimateModel"]["properties"]["unit"] = {"type": "string"}
    schemas["EstimateModel"]["required"].append("unit")  # of an answer: it is always there
    added = changes(recorded, found)
    assert [str(each) for each in added if not each.allowed] == []
    assert len(added) == 7
    assert changes(recorded, interface.read()) == []
