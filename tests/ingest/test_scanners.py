"""Scanners in C give the readings that the parsers in Python give, for bytes of any kind."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest
from support.rows import for_each

from decaysketch.ingest import line_protocol
from decaysketch.ingest._native import FLOAT, INTEGER, OTHER, Lines, Names, Samples
from quality import messages, scanners

_LINE = b"m,a=1 f=%s 1700000000000000000\n"
_LONGEST = line_protocol.MAX_LINE_BYTES


def _lines(body: bytes) -> Lines:
    return Lines(body, 0, len(body), precision=1, longest=_LONGEST)


def _numbers(seed: int) -> list[bytes]:
    """Texts of floats: short ones, the longest, halves between neighbours, extremes."""
    draw = random.Random(seed)
    found = ["0", "-0", "1.", ".5", "5e-324", "1e308", "9007199254740993", "1e22", "1e23",
             "123e-22",
             "2.2250738585072014e-308", "0.1", "1e-22", "00012.50", "-1E+2", "1" * 19, "1" * 20,
             "0." + "0" * 30 + "1", "1" + "0" * 40, "8.41e21"]  # fmt: skip
    for _ in range(500):
        (number,) = struct.unpack("<d", draw.randbytes(8))
        if np.isfinite(number):
            found += [repr(number), f"{number:.17e}", f"{draw.random():.{draw.randrange(20)}f}"]
    return [text.encode() for text in found]


def test_numbers_are_those_of_python() -> None:
    texts = _numbers(1)
    lines = _lines(b"".join(_LINE % text for text in texts))
    assert len(lines) == len(texts)
    assert (lines.kinds == FLOAT).all()
    assert lines.floats.tobytes() == np.array([*map(float, texts)]).tobytes()  # -0.0 among them


@for_each(
    "text, kind",
    [
        (b"7i", INTEGER), (b"-7i", INTEGER), (b"+7u", INTEGER), (b"9223372036854775807i", INTEGER),
        (b"-9223372036854775808i", INTEGER), (b"9223372036854775808i", OTHER), (b"1.0i", OTHER),
        (b"t", OTHER), (b'"a b"', OTHER), (b"1e999", OTHER), (b"nan", OTHER), (b"1_0", OTHER),
        (b"0x1", OTHER), (b"-", OTHER), (b"i", OTHER), (b".", OTHER), (b"1e", OTHER),
        (b"1e+", OTHER),
    ],
)  # fmt: skip
def test_kinds_of_values(text: bytes, kind: int) -> None:
    lines = _lines(_LINE % text)
    assert (len(lines), lines.kinds.tolist()) == (1, [kind])
    if kind == INTEGER:
        assert lines.fields[4].tolist() == [int(text[:-1])]


@for_each(
    "odd",
    [
        b"m f=1", b"m  f=1 1", b" m f=1 1", b"m f=1 1 ", b"m f=1 1x", b"m f=1 18446744073709551616",
        b"m f=1,g 1", b'm f="a\\"b" 1', b'm f="a\nb" 1', b"m f=1=2 1", b"m \\f=1 1", b"m =1 1",
        b"\xef\xbb\xbfm f=1 1", b"weather\n", b"m f=1\r 1",
    ],
)  # fmt: skip
def test_a_line_that_is_not_plain_ends_the_scan(odd: bytes) -> None:
    body = b"m,t=a\\ b f=1,g=2i 1\r\n# m\n\nm f=3 -1\n" + odd + b"\nm f=1 1\n"
    lines = _lines(body)
    assert (len(lines), lines.at, lines.ends) == (2, body.index(odd), 4)
    assert lines.lines[3, :-1].tolist() == [1, -1]


def test_strings_have_numbers_by_context() -> None:
    names, texts = Names(), [b"%d" % (number * 7919) for number in range(5_000)]
    assert [names.add(text, context) for text in texts for context in (0, 1)] == [*range(10_000)]
    body = b"".join(texts)
    ends = np.cumsum([len(text) for text in texts])
    found = names.find_all(body, np.array([0, *ends[:-1]]), ends, 1)
    assert found.tolist() == [*range(1, 10_000, 2)]
    assert (names.find(b"0", 2), names.find(b"1"), names.add(b"", 3)) == (-1, -1, 10_000)
    with pytest.raises(ValueError, match="bytes 0 to"):
        names.find_all(body, np.array([0]), np.array([len(body) + 1]))


@pytest.mark.parametrize("format", scanners.FORMATS)
def test_both_ways_give_the_same(format: str) -> None:
    assert scanners.differing(format, range(40)) == []


def test_samples_are_read_within_bounds() -> None:
    body = messages._SAMPLES * 3
    samples = Samples(body, 0, 2)
    assert (len(samples), samples.at, samples.plain.tolist()) == (2, 2 * len(body) // 3, [True] * 2)
    for size in range(1, len(messages._SAMPLES)):
        assert not Samples(body[:size], 0, 9).plain.any()


def test_lines_for_the_grammar_are_not_scanned_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []

    def counted(*arguments: Any, **named: Any) -> Lines:
        scans.append(arguments)
        return scanned(*arguments, **named)

    scanned = Lines
    monkeypatch.setattr(line_protocol, "Lines", counted)
    maps = line_protocol.LineMap.model_validate(
        {"format": "influx", "measurement": "m", "value": "v"}
    )
    assert len(line_protocol.parse(b"\r\n" * 6_400, [maps])) == 0
    assert len(scans) < 200
