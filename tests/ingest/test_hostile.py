"""Parsers raise nothing for what a stranger sends, and take time in proportion to it."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.message_formats import MESSAGE_FORMATS
from quality.bodies import KINDS, SERIES
from quality.messages import FORMATS, MAPS, SOUND, changed, outcome, study

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def test_every_message_format_has_hostile_bodies() -> None:
    for name, each in MESSAGE_FORMATS.items():
        (mapping, *_) = Mappings.model_validate({"map": [{"format": name} | MAPS[name][0]]}).map
        assert type(mapping) is each.mapping


@pytest.mark.parametrize("format", FORMATS)
def test_changed_messages_are_taken_or_refused(format: str) -> None:
    outcomes = Counter(outcome(changed(random.Random(n), format), format) for n in range(200))
    assert set(outcomes) == {"taken", "skipped", "refused", "partly refused"}


@pytest.mark.parametrize(
    "name",
    [*KINDS, *(f"series-{each}" for each in SERIES), *(f"columns-{each}" for each in FORMATS)],
)
def test_changed_bodies_are_taken_or_refused(name: str) -> None:
    """Bodies of :mod:`quality.bodies`. A study with one outcome would reach no reader."""
    outcomes, _, faults = study(name, 60, seed=1)
    assert faults == []
    assert len(outcomes) > 1


@given(st.sampled_from(FORMATS), st.binary(max_size=200) | _JSON.map(json.dumps))
@settings(max_examples=200, deadline=None)
def test_no_message_raises(format: str, body: bytes | str) -> None:
    outcome(body if isinstance(body, bytes) else body.encode(), format)


@given(st.sampled_from(sorted(SOUND)), st.data())
@settings(max_examples=200, deadline=None)
def test_no_value_in_a_sound_message_raises(format: str, data: st.DataObject) -> None:
    document: Any = json.loads(json.dumps(SOUND[format]))
    here = document
    while True:
        key = data.draw(st.sampled_from(sorted(here)))
        if not isinstance(here[key], dict) or data.draw(st.booleans()):
            here[key] = data.draw(_JSON)
            break
        here = here[key]
    outcome(json.dumps(document).encode(), format)


@pytest.mark.parametrize(
    "unit",
    [b"[", b'{"a":', b"{},", b'"\\u0000', b"9", b'{"rxInfo":[{"gwTime":"', b"1e9,"],
)
def test_time_is_in_proportion_to_the_message(unit: bytes) -> None:
    def seconds(length: int) -> float:
        body = b'{"w":[' + unit * (length // len(unit))
        begin = time.process_time()
        outcome(body, "json")
        return time.process_time() - begin

    short = min(seconds(100_000) for _ in range(3))
    assert min(seconds(800_000) for _ in range(3)) < 40 * max(short, 1e-4)  # 64 were quadratic
