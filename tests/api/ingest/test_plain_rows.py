"""Lines that are read fast are read as with care: to the same rows and the same refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from api.ingest import json_rows
from api.ingest.json_rows import MAX_LINE_BYTES, read_lines
from api.ingest.plain_rows import plain_reader
from decaysketch import SketchParams
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.families import recipe_of
from decaysketch.ingest.columns import Batch, Form, check
from quality.damage import damage

FORMS = [
    Form(recipe_of(params), "gateway-3", 10**12, 100_000)
    for params in (
        SketchParams(max_weight=99, id_bits=40, capacity=200),
        SketchParams(max_weight=99, id_bits=40, capacity=200, value_type="int64"),
        SumParams(max_sum=100, capacity=8),
        MedianParams(max_count=100, capacity=8),
    )
]

INTEGERS = ["0", "-0", "1", "7", "99", "-1", "1700000000", "9007199254740991", "9007199254740992",
            "-9007199254740993", "9223372036854775807", "-9223372036854775808",
            "9223372036854775808", "-9223372036854775809", "18446744073709551616", "9" * 20,
            "9" * 21, "-" + "9" * 5000]  # fmt: skip
NUMBERS = ["1.5", "-0.0", "20.5", "1e3", "1E+3", "1.0", "5e-324", "2.5e-324", "1e-999", "1e999",
           "-1e999",
           "0.1", "0.30000000000000004", "1.7976931348623157e308", "1.7976931348623159e308",
           "9007199254740993.0", "0." + "3" * 400, "123456789012345678901234567890.5"]  # fmt: skip
NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "01", "-01", "1.", ".5", "+1", "-", "1e", "0x1",
              "1_0",
              "true", "false", "null", '"1"', "{}", "[]", "[1]", '{"a": 1}', ""]  # fmt: skip
TEXTS = ['"a"', '"t-7/4711"', '""', '"ü"', '"\\u00fc"', '"\\ud83d\\ude00"', '"\\ud800"',
         '"\\udfff"',
         '"a\\nb"', '"a\\"b"', '"a\\\\"', '"\\/"', '"\t"', '"\x00"', '"\x7f"', '"\u2028"', '"{[,:"',
         '"\\x"', '"\\u12"', '"open', "'a'", '"' + "x" * 1024 + '"', '"' + "x" * 1025 + '"',
         '"' + "ü" * 513 + '"', '"' + "ü" * 300 + '"']  # fmt: skip
LISTS = ["[]", '["a"]', "[1]", '["a", 1]', '["a",-1,"ü",9]', "[1,2,3,4,5]", '["a", ""]', "[1.0]",
         "[null]", "[true]", '[["a"]]', '["a",]', "[9223372036854775808]", '["\\ud800"]',
         '["a" "b"]']  # fmt: skip
NAMES = [
    '"value"',
    '"weight"',
    '"time"',
    '"id"',
    '"\\u0069d"',
    '"Id"',
    '"v"',
    '""',
    "id",
    '"id\\u0000"',
]
SPACES = ["", "", "", " ", "\t", "\r", "\x0b", "\x0c", "\ufeff", "\xa0", "/**/"]
ENDS = ["", "", "", "", " ", "\r", "x", "}", "{}", ",", "\x0c", "\x00", ' {"time": 1, "id": 2}']


def lines_of(draw: random.Random) -> Iterator[str]:
    """Sound lines, and lines at whose every place something stands that may or may not."""
    sound = {'"value"': [*NUMBERS[:3], "1", "null"], '"weight"': ["1", "99"], '"time"': ["5", "-5"],
             '"id"': ["7", '"a"', '["a", 1]']}  # fmt: skip
    while True:
        names = draw.sample(NAMES[:4], draw.choice([2, 3, 4, 4, 4]))
        if draw.random() < 0.8:
            names = list({'"time"', '"id"', *names})
        if draw.random() < 0.1:
            names.append(draw.choice([*names, *NAMES]))
        draw.shuffle(names)
        odd = draw.choice(names) if draw.random() < 0.7 else None
        members = []
        for name in names:
            value = draw.choice(sound.get(name, ["1"]))
            if name == odd:
                value = draw.choice(draw.choice([INTEGERS, NUMBERS, NO_NUMBERS, TEXTS, LISTS]))
            space = draw.choice(SPACES) if draw.random() < 0.02 else draw.choice(["", " "])
            members.append(f"{name}{space}:{space}{value}")
        comma = draw.choice([",", ", ", ",", ", ", ",,"]) if draw.random() < 0.1 else ", "
        end = draw.choice(ENDS) if draw.random() < 0.1 else ""
        yield draw.choice(SPACES[:7]) + "{" + comma.join(members) + "}" + end


def as_with_care(body: bytes, form: Form) -> Batch:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "plain_reader", lambda _form: lambda _lines: None)
        return read_lines(body, form)


def plain(lines: Sequence[bytes], form: Form) -> int:
    read = plain_reader(form)
    return sum(read(line) is not None for line in lines)


def assert_read_alike(body: bytes, form: Form) -> None:
    fast, careful = read_lines(body, form), as_with_care(body, form)
    assert fast.rows == careful.rows
    assert fast.keys == careful.keys
    assert repr(fast.keys) == repr(careful.keys), "an integer is no text, and no bool"
    # Not compared by value: not a number is not itself.
    assert repr(fast.refusals) == repr(careful.refusals)
    for name in ("positions", "values", "missing", "weights", "times", "ids"):
        ours, theirs = getattr(fast, name), getattr(careful, name)
        assert (ours.dtype, ours.tobytes()) == (theirs.dtype, theirs.tobytes()), name


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.recipe.family))
def test_generated_lines(form: Form) -> None:
    draw = random.Random(7)
    made = lines_of(draw)
    taken = refused = 0
    for _ in range(16):
        lines = [next(made).encode("utf-8", "surrogatepass") for _ in range(250)]
        assert_read_alike(b"\n".join(lines), form)
        taken += plain(lines, form)
        refused += len(read_lines(b"\n".join(lines), form).refusals)
    assert taken > 160, "many are plain"
    assert refused > 400, "and many are at fault"


@pytest.mark.parametrize("together", [1, 30, 100, 1_000])
def test_however_lines_are_portioned(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    draw = random.Random(9)
    made = lines_of(draw)
    monkeypatch.setattr(json_rows, "_BYTES_TOGETHER", together)
    for _ in range(50):
        ends = draw.choices([b"\n", b"\n\n", b"\r\n", b" \n \n"], [20, 1, 1, 1], k=20)
        body = b"".join(next(made).encode("utf-8", "surrogatepass") + end for end in ends)
        for each in (body, body.rstrip(b"\n"), b"\n" + body):
            assert_read_alike(each, FORMS[0])


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n", b"\n\n\n", b" \n\n"])
def test_two_objects_in_a_line_are_none_however_the_body_ends(
    monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    line = b'{"time":5,"id":0}{"time":1,"id":2}'
    for together in (len(line) + 2, 1_000):
        monkeypatch.setattr(json_rows, "_BYTES_TOGETHER", together)
        raw = read_lines(line + end, FORMS[0])
        assert (raw.rows, len(raw.refusals)) == (1, 1)


def test_sound_lines_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_read_some", None)
    line = b'{"time": 5, "id": 7}'
    for body in (b"\n".join([line] * 9_000), (line + b"\n") * 9_000):
        assert read_lines(body, FORMS[0]).rows == 9_000


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.recipe.family))
def test_damaged_lines(form: Form) -> None:
    draw = random.Random(8)
    made = lines_of(draw)
    tokens = [
        each.encode("utf-8", "surrogatepass") for each in (*NAMES, *SPACES, *ENDS, *NO_NUMBERS)
    ]
    for _ in range(800):
        lines = [next(made).encode("utf-8", "surrogatepass") for _ in range(4)]
        body = bytearray(b"\n".join(lines))
        for _ in range(draw.choice([1, 2, 5])):
            damage(draw, body, lines, tokens)
        assert_read_alike(bytes(body), form)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.recipe.family))
def test_every_kind_of_value_in_every_place(form: Form) -> None:
    sound = {'"time"': "5", '"id"': "7", '"value"': "1", '"weight"': "1"}
    lines = [
        "{" + ", ".join(f"{each}: {value}" for each, value in {**sound, name: odd}.items()) + "}"
        for name in (*NAMES,)
        for odd in (*INTEGERS, *NUMBERS, *NO_NUMBERS, *TEXTS, *LISTS)
    ]
    assert_read_alike("\n".join(lines).encode("utf-8", "surrogatepass"), form)


@pytest.mark.parametrize(
    "line",
    [
        '{"time": 1, "id": 7, "id": 7}',
        '{"id": "a", "time": 1, "id": 7}',
        '{"id": 7, "time": 1, "\\u0069d": "a"}',
        '{"time": 1, "id": 7, "value": null, "value": 1.5}',
        '{"time": 1, "id": 7, "weight": 1, "weight": 1}',
        '{"time": 1, "id": 7, "value": 9007199254740993}',
        '{"time": 1, "id": "a\\"b"}',
        '{"time": 1, "id": 7} {"time": 1, "id": 8}',
    ],
)
def test_a_line_that_may_mean_something_else_is_not_plain(line: str) -> None:
    assert plain_reader(FORMS[0])(line.encode()) is None
    assert_read_alike(line.encode(), FORMS[0])


def test_an_object_over_two_lines_is_two_rows_at_fault() -> None:
    raw = read_lines(b'{"time": 1,\n"id": 7}\n', FORMS[0])
    assert (raw.rows, len(raw.refusals)) == (2, 2)


@pytest.mark.parametrize(
    "body",
    [
        b'{"time": 1,\n"id": 7} {"time": 2, "id": 8}',
        b'{"time": 1, "id": 7} {"time": 2,\n"id": 8}',
        b'{"time": 1, "id": "}\n"} {"time": 2, "id": 8}',
        b'{"time": 1, "id": ["a"\n, 1]}\n{"time": 2, "id": 8} {"time": 3, "id": 9}',
        b'{"time": 1, "id": 7, "id": 7}\n{"time": 1}',
        b'{"time": 1, "id": "a\\"b"}\n{"time": 1, "id": 7, "value": 2, "weight": 3}',
    ],
)
def test_as_many_objects_as_lines_are_not_one_a_line(body: bytes) -> None:
    assert plain_reader(FORMS[0])(body) is None
    assert_read_alike(body, FORMS[0])


def test_lines_beside_one_that_is_not_plain_are_read_as_they_are() -> None:
    sound = [b'{"time": %d, "id": "t-%d", "value": 1.5}' % (each, each) for each in range(1500)]
    for odd in (b"", b" ", b"[]", b'{"time": 1}', b" " * MAX_LINE_BYTES + b" {}"):
        for place in (0, 511, 512, 1499):
            lines = [*sound[:place], odd, *sound[place:]]
            assert_read_alike(b"\n".join(lines), FORMS[0])


def test_lines_as_clients_write_them_are_plain() -> None:
    draw = np.random.default_rng(1)
    rows = [
        {"value": value, "weight": weight, "time": time, "id": id_}
        for value, weight, time, id_ in zip(
            draw.normal(20, 5, 500).tolist(), draw.integers(1, 100, 500).tolist(),
            draw.integers(0, 10**9, 500).tolist(), draw.integers(0, 1 << 40, 500).tolist(),
            strict=True,
        )
    ]  # fmt: skip
    rows += [{"time": 5, "id": f"t-7/{number}"} for number in range(10)]
    rows += [{"time": 5, "id": ["t-7", number], "value": None} for number in range(10)]
    lines = [json.dumps(row).encode() for row in rows]
    assert plain(lines, FORMS[0]) == len(lines)
    batch = check(read_lines(b"\r\n".join(lines), FORMS[0]), FORMS[0])
    assert (batch.rows, batch.refusals) == (len(lines), [])
