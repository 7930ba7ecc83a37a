"""Messages of ChirpStack, The Things Stack and of any other shape become readings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ingest.messages import T0, UP, chirpstack, parsed_of, stamp, tts
from pydantic import ValidationError
from support.rows import for_each

NS = 1_000_000_000
TEMPERATURE = {"format": "chirpstack", "value": "object.temperature"}
THINGS = {"format": "tts", "value": "uplink_message.decoded_payload.t"}
POWER = {"format": "json", "value": "w", "id": ["topic[1]", "seq"], "time": "ts", "time_unit": "ms"}


def keys(*documents: object, how: dict[str, Any]) -> list[tuple[str | int, ...]]:
    found = []
    for document in documents:
        parsed = parsed_of(document, how)
        assert not parsed.refused
        found += [reading.key for reading in parsed.readings]
    return found


class TestChirpStack:
    def test_an_uplink_is_a_reading_of_each_map(self) -> None:
        parsed = parsed_of(
            chirpstack(),
            TEMPERATURE,
            {"format": "chirpstack", "value": "object.open"},
            {"format": "chirpstack", "value": "object.gps.alt", "scale": 0.5},
            topic=UP,
        )
        frame = ("70b3d54990000001", "01ab0001", 7)
        assert [tuple(each)[:4] for each in parsed.readings] == [
            ((*frame, "object.temperature"), 21.5, T0 * NS, 1),
            ((*frame, "object.open"), 1, T0 * NS, 1),
            ((*frame, "object.gps.alt"), 60.25, T0 * NS, 1),
        ]
        assert not parsed.refused
        assert not parsed.skipped

    def test_a_copy_by_other_gateways_is_the_same_reading(self) -> None:
        late = chirpstack(deduplicationId="another", rxInfo=[{"gatewayId": "gw9", "rssi": -120}])
        first, second = keys(chirpstack(), late, how=TEMPERATURE)
        assert first == second

    def test_a_device_that_joins_again_sends_others(self) -> None:
        sent = [chirpstack(0), chirpstack(1), chirpstack(0, devAddr="02CD0001")]
        found = keys(*sent, how=TEMPERATURE)
        assert [key[1:3] for key in found] == [("01ab0001", 0), ("01ab0001", 1), ("02cd0001", 0)]

    def test_the_earliest_gateway_with_a_clock_says_the_time(self) -> None:
        heard = [
            {"gatewayId": "a", "gwTime": stamp(T0 - 1)},
            {"gatewayId": "b", "gwTime": "2023-11-14T22:13:18.123456789Z"},
            {"gatewayId": "c"},
        ]
        (reading,) = parsed_of(chirpstack(rxInfo=heard), TEMPERATURE).readings
        assert reading.time_ns == (T0 - 2) * NS + 123_456_789
        own = TEMPERATURE | {"time": "object.clock", "time_unit": "s"}
        (reading,) = parsed_of(chirpstack(object={"temperature": 1, "clock": 5}), own).readings
        assert reading.time_ns == 5 * NS

    def test_each_reception_is_a_reading(self) -> None:
        how = {
            "format": "chirpstack", "each": "rxInfo", "value": "rssi",
            "id": ["$lorawan", "gatewayId"],
        }  # fmt: skip
        parsed = parsed_of(chirpstack(), how)
        assert [(each.key[3:], each.value) for each in parsed.readings] == [
            (("gw1", "rssi"), -90),
            (("gw2", "rssi"), -101),
        ]

    def test_a_counter_that_begins_anew_without_a_session(self) -> None:
        how = TEMPERATURE | {"reset": "30d"}
        first, second, third = keys(
            chirpstack(), chirpstack(at=T0 + 86_400), chirpstack(at=T0 + 40 * 86_400), how=how
        )
        assert first == second != third

    @pytest.mark.parametrize(
        ("topic", "document", "how", "word"),
        [
            (UP.replace("/up", "/join"), {}, {}, "event"),
            (UP, chirpstack(), {"where": {"deviceInfo.applicationName": "x"}}, "where"),
            (UP, chirpstack(), {"where": {"fPort": [1, 3]}}, "where"),
            (UP, chirpstack(), {"where": {"fPort": True}}, "where"),
            (UP, chirpstack(object={}), {}, "no value"),
            (UP, chirpstack(object=None), {}, "no value"),
        ],
    )
    def test_skips_what_is_not_ours(
        self, topic: str, document: object, how: dict[str, Any], word: str
    ) -> None:
        parsed = parsed_of(document, TEMPERATURE | how, topic=topic)
        assert parsed.skipped == {word: 1}
        assert not parsed.readings
        assert not parsed.refused

    def test_takes_what_the_filter_takes(self) -> None:
        where = {"deviceInfo.applicationName": ["yard", "ward"], "fPort": 2}
        assert len(parsed_of(chirpstack(), TEMPERATURE | {"where": where}).readings) == 1

    @for_each(
        "document, reason",
        [
            (b"not json", "not JSON: Expecting value at character 0"),
            (b"\xff", "not JSON"),
            (b"[" * 100_000, "nested too deeply"),
            ([], "an array; expected a JSON object"),
            ({}, "there is no deviceInfo.devEui"),
            (chirpstack(devAddr=None), "there is no devAddr"),
            (chirpstack(devAddr=7), "devAddr is 7; expected a text"),
            (chirpstack(fCnt=-1), "fCnt is -1"),
            (chirpstack(fCnt="7.5"), "fCnt is '7.5'"),
            (chirpstack(time=None), "no gateway and no server gives a time"),
            (chirpstack(time="2023-11-14T22:13:18"), "expected a time with its zone"),
            (chirpstack(rxInfo=3), "rxInfo is 3; expected an array"),
            (chirpstack(object={"temperature": "ok"}), "is 'ok'; expected a number"),
            (chirpstack(object={"temperature": float("nan")}), "is nan; expected a number"),
            (chirpstack(object={"temperature": {"a": 1}}), "is an object; expected a number"),
            (b'{"deviceInfo": {"devEui": "a", "devEui": "b"}}', "a repeated name"),
            (b'{"devAddr": "a", "devAddr": "b"}', "without repeated names"),
        ],
    )
    def test_refuses_what_is_ours_and_wrong(self, document: object, reason: str) -> None:
        parsed = parsed_of(document, TEMPERATURE)
        ((_, said),) = parsed.refused
        assert reason in said
        assert parsed.refusals == 1
        assert not parsed.readings


class TestTheThingsStack:
    def test_an_uplink_is_a_reading(self) -> None:
        (reading,) = parsed_of(tts(), THINGS).readings
        session = "AYfg8rhha5n+FWx0ZaAprA=="
        assert reading.key == ("70b3d57ed0000001", session, 7, THINGS["value"])
        assert (reading.value, reading.time_ns) == (21.5, T0 * NS)

    def test_a_zero_is_left_out_and_a_new_session_is_another(self) -> None:
        found = keys(tts(0), tts(0, session_key_id="Bxyz=="), tts(0, f_cnt=0), how=THINGS)
        assert found[0] == found[2] != found[1]
        assert found[0][2] == 0

    def test_without_a_key_the_address_is_the_session_and_without_an_eui_the_name(self) -> None:
        plain = tts(session_key_id=None)
        del plain["end_device_ids"]["dev_eui"]
        ((device, session, *_),) = keys(plain, how=THINGS)
        assert (device, session) == ("a/d1", "260b0001")

    def test_the_earliest_gateway_says_the_time(self) -> None:
        heard = [{"time": stamp(T0 - 3)}, {"time": stamp(T0 - 5)}]
        (reading,) = parsed_of(tts(rx_metadata=heard), THINGS).readings
        assert reading.time_ns == (T0 - 5) * NS
        (reading,) = parsed_of(tts(received_at=None), THINGS).readings
        assert reading.time_ns == (T0 + 1) * NS

    @pytest.mark.parametrize(
        ("document", "word"),
        [
            ({"end_device_ids": {}, "join_accept": {}}, "event"),
            (tts(simulated=True), "simulated"),
            (tts() | {"simulated": True}, "simulated"),
        ],
    )
    def test_skips_what_no_device_sent(self, document: object, word: str) -> None:
        parsed = parsed_of(document, THINGS)
        assert parsed.skipped == {word: 1}
        assert not parsed.readings

    @pytest.mark.parametrize(
        ("document", "reason"),
        [
            ({"uplink_message": 3}, "there is neither end_device_ids.dev_eui nor"),
            (tts(session_key_id=3), "session_key_id is 3"),
            (tts(f_cnt=1 << 32), "f_cnt is 4294967296"),
        ],
    )
    def test_refuses(self, document: object, reason: str) -> None:
        ((_, said),) = parsed_of(document, THINGS).refused
        assert reason in said


class TestJson:
    def test_the_map_says_what_is_where(self) -> None:
        how = POWER | {"scale": 0.001, "missing": ["", -999], "weight": "n"}
        found = [
            parsed_of({"w": w, "seq": 4.0, "ts": 1.5, "n": 3.0}, how, topic="s/kitchen/up").readings
            for w in (1500, "", -999.0, None)
        ]
        assert [tuple(each)[:4] for (each,) in found] == [
            (("kitchen", 4, "w"), value, 1_500_000, 3) for value in (1.5, None, None, None)
        ]

    def test_floats_are_read_as_the_decimals_that_were_written(self) -> None:
        how = POWER | {"id": ["seq"], "time_unit": "s"}
        (reading,) = parsed_of({"w": 1, "seq": "a", "ts": 1700000000.123}, how).readings
        assert reading.time_ns == 1_700_000_000_123_000_000

    def test_the_last_part_of_an_id_is_the_field(self) -> None:
        document = {"w": 1, "seq": "a", "ts": 1}
        how = POWER | {"id": ["seq"]}
        assert keys(document, how=how) == [("a", "w")]
        assert keys(document, how=how | {"field": "power"}) == [("a", "power")]
        assert keys(document, how=how | {"field": ""}) == [("a",)]

    def test_of_an_array_paths_begin_in_the_element_or_at_the_root(self) -> None:
        how = {
            "format": "json", "each": "rows", "value": "v", "id": ["$.box", "n"],
            "time": "$.sent",
        }  # fmt: skip
        document = {"box": 9, "sent": stamp(T0), "rows": [{"n": 1, "v": 2}, {"n": 2}, {"v": 3}]}
        parsed = parsed_of(document, how)
        assert [(each.key, each.value) for each in parsed.readings] == [((9, 1, "v"), 2)]
        assert parsed.skipped == {"no value": 1}
        assert parsed.refused == [("rows[2].v", "there is no n, which the id needs")]

    def test_a_message_may_be_of_the_time_of_its_arrival(self) -> None:
        how = {"format": "json", "value": "w", "id": ["seq"], "time": "arrival"}
        assert parsed_of({"w": 1, "seq": 1}, how, arrival_ns=5).readings[0].time_ns == 5
        ((_, said),) = parsed_of({"w": 1, "seq": 1}, how).refused
        assert "has no time of arrival" in said

    @for_each(
        "document, reason",
        [
            ({"w": 1, "seq": 1}, "there is no ts, which is the time"),
            ({"w": 1, "ts": 1}, "there is no seq, which the id needs"),
            ({"w": 1, "ts": "x", "seq": 1}, "ts is 'x'; expected a number"),
            ({"w": 1, "ts": "2026-01-01T00:00:00", "seq": 1}, "without a zone"),
            ({"w": 1, "ts": 1_700_000_000, "seq": 1}, "in s it would be 2023"),
            ({"w": "1,5", "ts": 1, "seq": 1}, "`decimal`"),
            ({"w": "1554.N0N", "ts": 1, "seq": 1}, "is '1554.N0N'; expected a number"),
            ({"w": 1, "ts": True, "seq": 1}, "ts is True"),
            (
                {"w": 1, "ts": 1, "seq": True},
                "seq is True; expected a number or a text as an id part",
            ),
            ({"w": 1, "ts": 1, "seq": None}, "seq is None"),
            ({"w": 1, "ts": 1, "seq": [1]}, "seq is an array"),
            ({"w": 1, "ts": 1, "seq": ""}, "seq is ''"),
            ({"w": "x" * 10_000, "ts": 1, "seq": 1}, "has 10000 characters"),
            ({"w": "x" * 300, "ts": 1, "seq": 1}, "expected a number"),
        ],
    )
    def test_refuses(self, document: object, reason: str) -> None:
        ((_, said),) = parsed_of(document, POWER | {"id": ["seq"]}).refused
        assert reason in said
        assert len(said) < 300

    def test_a_message_without_a_topic_names_nothing_by_it(self) -> None:
        ((_, said),) = parsed_of({"w": 1, "seq": 1, "ts": 1}, POWER).refused
        assert "there is no topic[1]" in said


JSON = {"format": "json", "value": "v", "id": ["n"], "time": "t", "time_unit": "ms"}
MS = T0 * 1000


def values(document: object, topic: str = "", **changed: Any) -> list[Any]:
    how = JSON | changed
    parsed = parsed_of(document, {k: v for k, v in how.items() if v is not None}, topic=topic)
    assert not parsed.refused, parsed.refused
    return [each.value for each in parsed.readings]


def read_time(given: object, **changed: Any) -> int:
    how = JSON | changed
    how = {key: each for key, each in how.items() if each is not None}
    (reading,) = parsed_of({"v": 1, "n": 1, "t": given}, how).readings
    return reading.time_ns


class TestHowValuesAreWritten:
    def test_numbers_in_quotes(self) -> None:
        given = {"n": 1, "t": str(MS)}
        assert values(given | {"v": "100.00"}) == [100.0]
        assert values(given | {"v": " -1e3 "}) == [-1000.0]
        german = {"decimal": ",", "thousands": "."}
        assert values(given | {"v": "1.234,5"}, **german) == [1234.5]
        assert values(given | {"v": "ON"}, texts={"ON": 1, "OFF": 0}) == [1]
        assert values(given | {"v": "n/a"}, texts={"n/a": None}) == [None]
        assert values(given | {"v": "-999"}, missing=["-999"]) == [None]
        assert values(given | {"v": "3", "w": "2"}, weight="w") == [3]

    def test_times(self) -> None:
        assert read_time(str(MS)) == T0 * NS
        assert read_time("1.7e12") == T0 * NS
        assert read_time(stamp(T0)) == T0 * NS  # a date is one, whatever the unit of numbers is
        assert read_time("2023-11-14 23:13:20", time_zone="Europe/Berlin") == T0 * NS
        assert read_time("14/11/2023 22:13:20", time_unit=None, time_zone="UTC",
                         time_format="%d/%m/%Y %H:%M:%S") == T0 * NS  # fmt: skip
        assert read_time(T0, check_units=False) == T0 * 10**6

    def test_names_with_dots(self) -> None:
        given = {"n": 1, "t": MS, "pm_2.5": 5, "a": {"b.c": 6, "b": {"c": 7}}, "x.y": {"z": 8}}
        assert values(given, value="pm_2.5") == values(given, value='["pm_2.5"]') == [5]
        assert values(given, value="a.b.c") == [7]
        assert values(given, value='a["b.c"]') == [6]
        assert values(given, value='["x.y"].z') == [8]

    def test_json_in_a_text(self) -> None:
        inner = json.dumps({"w": 12.5, "deep": json.dumps([1, 2])})
        given = {"n": 1, "t": MS, "payload": inner}
        assert values(given, value="payload.w") == [12.5]
        assert values(given, value="payload.deep[1]") == [2]
        assert values(json.dumps(given), value="payload.w") == [12.5]  # the message is a text
        parsed = parsed_of(given | {"payload": "no"}, JSON | {"value": "payload.w"})
        assert "payload.w is a text that is not JSON" in parsed.refused[0][1]
        many = given | {"payload": "[" + "{}," * 20_000 + "{}]"}
        parsed = parsed_of(many, JSON | {"value": "payload[1]"})
        assert "at most 10000 are read" in parsed.refused[0][1]

    def test_messages_that_are_no_objects(self) -> None:
        plain = {"value": "$", "id": ["topic[1]"], "time": "arrival", "time_unit": None}
        how = {key: each for key, each in (JSON | plain).items() if each is not None}
        parsed = parsed_of(b"233.3", how, topic="inverter/voltage", arrival_ns=5)
        assert [tuple(each)[:3] for each in parsed.readings] == [(("voltage", "$"), 233.3, 5)]
        text = how | {"format": "text", "texts": {"ON": 1}}
        assert parsed_of(b" ON\r\n", text, topic="a/b", arrival_ns=5).readings[0].value == 1
        assert parsed_of(b"21.5", text, topic="a/b", arrival_ns=5).readings[0].value == 21.5
        for body, cure in ((b"233.3", 'value = "$"'), (b"[1]", 'each = "$"'), (b"true", "`value")):
            assert cure in parsed_of(body, JSON).refused[0][1]

    def test_arrays_and_objects_of_readings(self) -> None:
        rows = [{"n": 1, "t": MS, "v": 1, "k": "a"}, {"n": 2, "t": MS, "v": 2, "k": "b"}]
        assert values(rows, each="$") == [1, 2]
        assert values(rows, each="$", where={"@.k": ["b", "c"]}) == [2]
        assert values([*rows, {"n": 3, "t": MS, "x": 3}], each="$", has=["@.v"]) == [1, 2]
        sensors = {"t": MS, "s": {"in": 20.5, "out": 3}}
        named = {"each": "s", "value": "@", "id": ["@key"], "time": "$.t"}
        parsed = parsed_of(sensors, JSON | named)
        assert [(each.key, each.value) for each in parsed.readings] == [
            (("in", "@"), 20.5), (("out", "@"), 3),
        ]  # fmt: skip
        placed = {"each": "s", "value": "@", "id": ["@key"], "time": "$.t"}
        parsed = parsed_of({"t": MS, "s": [7, 8]}, JSON | placed)
        assert [each.key for each in parsed.readings] == [(0, "@"), (1, "@")]

    def test_messages_of_other_firmware_are_skipped(self) -> None:
        old, new = JSON | {"has": ["v"]}, JSON | {"value": "w", "has": ["w"]}
        parsed = parsed_of({"n": 1, "t": MS, "w": 2}, old, new)
        assert [each.value for each in parsed.readings] == [2]
        assert parsed.skipped == {"where": 1}
        assert parsed_of({"n": 1, "t": MS, "v": None}, old).skipped == {"where": 1}

    def test_fractions_in_ids(self) -> None:
        how = JSON | {"id": ["t", "n"]}
        parsed = parsed_of({"n": 7.0, "t": MS + 0.5, "v": 1}, how)
        assert parsed.readings[0].key == (f"{MS}.5", 7, "v")

    def test_a_byte_order_mark_is_no_part_of_a_message(self) -> None:
        body = "\ufeff".encode() + json.dumps({"n": 1, "t": MS, "v": 1}).encode()
        assert values(body) == [1]
        wide = parsed_of("\ufeff{}".encode("utf-16-le"), JSON).refused
        assert "UTF-16; expected UTF-8" in wide[0][1]


DAY = 86_400


class TestClocksOfGateways:
    @for_each(
        "server, said, expected, off",
        [
            (T0, ["0001-01-01T00:00:00Z", T0 - 1], T0 - 1, ["g0"]),
            (T0, ["0001-01-01T00:00:00Z"], T0, ["g0"]),
            (T0, [0, T0 - 2], T0 - 2, ["g0"]),  # 1970
            (T0, [315_964_800, T0], T0, ["g0"]),  # the epoch of GPS
            (T0, [946_684_800], T0, ["g0"]),  # 2000, alone
            (T0, [1_325_376_010, T0 - 1], T0 - 1, ["g0"]),  # 2012
            (T0, [T0 - 1, 1_325_376_010], T0 - 1, ["g1"]),
            (T0, [T0 + DAY, T0 - 1], T0 - 1, ["g0"]),  # ahead
            (T0, [T0 + DAY], T0, ["g0"]),
            (T0, [4_200_000_000], T0, ["g0"]),  # 2103
            (T0, ["now", T0 - 1], T0 - 1, ["g0"]),
            (T0, [7.5, T0 - 1], T0 - 1, ["g0"]),
            # A gateway that was offline forwards what it stored.
            (T0, [T0 - 3 * DAY], T0 - 3 * DAY, []),
            (T0, [T0 - 3 * DAY, T0 - 3 * DAY - 1], T0 - 3 * DAY - 1, []),
            (T0, [T0 - 3 * DAY, T0], T0, ["g0"]),
            (None, [1_325_376_010, T0], T0, ["g0"]),
            (None, [1_325_376_010, T0 - 1, T0], T0 - 1, ["g0"]),
            (0, [T0], T0, []),  # the server has no clock
            (100, [90, 95], 90, []),  # all agree: a simulation
        ],
    )
    def test_times_that_cannot_be_right_are_not_used(
        self, server: int | None, said: list[Any], expected: int, off: list[str]
    ) -> None:
        stamps = [stamp(each) if type(each) is int else each for each in said]
        at = None if server is None else stamp(server)
        heard = [{"gatewayId": f"g{n}", "gwTime": each} for n, each in enumerate(stamps)]
        parsed = parsed_of(chirpstack(time=at, rxInfo=heard), TEMPERATURE)
        assert [reading.time_ns for reading in parsed.readings] == [expected * NS]
        assert [name for name, _ in parsed.off] == off
        heard = [{"gateway_ids": {"gateway_id": f"g{n}"}, "time": each}
                 for n, each in enumerate(stamps)]  # fmt: skip
        message = tts(rx_metadata=heard, received_at=at) | {"received_at": at}
        parsed = parsed_of(message, THINGS)
        assert [reading.time_ns for reading in parsed.readings] == [expected * NS]
        assert [name for name, _ in parsed.off] == off

    def test_nobody_says_a_time(self) -> None:
        heard = [{"gatewayId": "g", "gwTime": "0001-01-01T00:00:00Z"}]
        for at in (None, "0001-01-01T00:00:00Z"):
            parsed = parsed_of(chirpstack(time=at, rxInfo=heard), TEMPERATURE)
            assert "no gateway and no server gives a time" in parsed.refused[0][1]


class TestMaps:
    @for_each(
        "how, reason",
        [
            ({"format": "json", "value": "w", "time": "t"}, "id is missing"),
            ({"format": "json", "value": "w", "id": ["a"]}, "time is missing"),
            (TEMPERATURE | {"value": "a..b"}, "path is 'a..b'"),
            (TEMPERATURE | {"value": "a[x]"}, "path is 'a[x]'"),
            (TEMPERATURE | {"values": "a"}, "Extra inputs are not permitted"),
            (TEMPERATURE | {"scale": 0}, "scale is 0"),
            (TEMPERATURE | {"scale": float("inf")}, "finite"),
            (TEMPERATURE | {"reset": "1s"}, "expected at least an hour"),
            (TEMPERATURE | {"reset": "soon"}, "reset is 'soon'"),
            (TEMPERATURE | {"id": ["object.n"], "reset": "1d"}, "the id has no"),
            (TEMPERATURE | {"time_unit": "ms"}, "time names no path"),
            (TEMPERATURE | {"id": ["a", "b", "c", "d", "e", "f"]}, "id has 6 parts"),
            (POWER | {"id": ["$lorawan"]}, "have no frames"),
            (TEMPERATURE | {"format": "csv"}, "does not match any of the expected tags"),
            (TEMPERATURE | {"stream": "a b"}, "String should match pattern"),
            (JSON | {"time_zone": "Berlin"}, "time_zone is 'Berlin'"),
            (JSON | {"time_format": "%H:%M"}, "time_format is"),
            (JSON | {"decimal": ",", "thousands": ","}, "thousands and decimal are both"),
            (JSON | {"value": "$a"}, "path is '$a'"),
            (JSON | {"value": 'a["b'}, "path is"),
            (JSON | {"value": ".".join("a" * 40)}, "path is"),
            (JSON | {"has": ["a..b"]}, "path is 'a..b'"),
            (JSON | {"labels": True, "texts": {"a": 1}}, "values are labels"),
        ],
    )
    def test_refuse_what_means_nothing(self, how: dict[str, Any], reason: str) -> None:
        with pytest.raises(ValidationError, match=r".") as refused:
            parsed_of({}, how)
        assert reason in str(refused.value)
