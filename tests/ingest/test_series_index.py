"""Compiled mappings choose what each of them says, at a cost that no mapping multiplies."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.series import Readers

_NAMES, _TEXTS = st.sampled_from("abcdef"), st.sampled_from("xyz")
_LABELS = st.dictionaries(_NAMES, _TEXTS)
_WHERE = st.dictionaries(_NAMES, _TEXTS | st.lists(_TEXTS, max_size=3), max_size=4)


def maps(wheres: list[Any]) -> Any:
    each = {"format": "influx", "measurement": "m", "value": "v"}
    return Mappings.model_validate({"map": [each | {"where": where} for where in wheres]})


def wants(where: dict[str, Any], labels: dict[str, str]) -> bool:
    return all(labels.get(name) in ((text,) if isinstance(text, str) else text)
               for name, text in where.items())  # fmt: skip


@given(st.lists(_WHERE, min_size=1, max_size=8), _LABELS, _LABELS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # on a busy machine
def test_an_index_chooses_what_the_mappings_say(
    wheres: list[Any], shared: dict[str, str], own: dict[str, str]
) -> None:
    mappings = maps(wheres)
    readers = mappings.series["influx"].readers("m")
    both = own | shared
    expected = [
        each for each, where in zip(mappings.map, wheres, strict=True) if wants(where, both)
    ]
    assert readers is not None
    assert readers.wanting(both) == expected
    assert readers.given(shared).wanting(own) == expected


class Counted(dict[str, str]):
    looked = 0

    def get(self, name: str, default: Any = None) -> Any:
        self.looked += 1
        return super().get(name, default)


def test_the_cost_of_a_series_is_that_of_its_labels() -> None:
    """Twenty mappings of nineteen lists of 97 texts, and one text that never comes."""
    names = [f"n{number}" for number in range(19)]
    texts = [str(number) for number in range(96)] + ["x"]
    wheres = [dict.fromkeys(names, texts) | {"zz": f"no{number}"} for number in range(20)]
    readers = Readers(maps(wheres).map)
    labels = Counted(dict.fromkeys(names, "x"))
    assert readers.wanting(labels) == []
    assert labels.looked <= 20
    apart = [{f"n{number}-{turn}": "x" for turn in range(20)} for number in range(20)]
    labels = Counted({f"n0-{turn}": "x" for turn in range(20)})
    assert len(Readers(maps(apart).map).wanting(labels)) == 1
    assert labels.looked <= 40
