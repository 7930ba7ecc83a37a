"""Writes the golden files: ``PYTHONPATH=.:tests python -m golden.make``.

For each case ``FAMILY/NAME.dsk`` are the bytes and ``NAME.json`` is what they say. They bind every
later release, so an existing file is never changed: a new wire version gets a directory of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from golden import sites
from golden.cases import TABLE, Case, cases
from support.examples import states_of
from support.records import column_values, tuples_of

from decaysketch.core.labels import Labels, code_of, values_of
from decaysketch.core.observations import encode_values
from decaysketch.core.records import encode_records
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.ecm.state import CollectionState
from decaysketch.families import Recipe, recipe_from_dict
from decaysketch.querytime import wire
from decaysketch.querytime.strata_state import StrataState

DIRECTORY = Path(__file__).parent / f"v{wire.VERSION}"

#: Column of the JSON -> array of the state. What a state has no array of is not written down.
_COLUMNS: Mapping[str, str] = {
    "time": "times", "id": "ids", "key": "keys", "weight": "weights", "level": "levels",
    "value key": "value_keys", "entity": "entities", "start": "starts",
}  # fmt: skip
#: The columns that those files have that were written first.
_FIRST: Mapping[str, tuple[str, ...]] = {
    "decay": ("time", "id", "weight", "level", "value"),
    "integral": ("time", "id", "weight", "value key"),
    "sum": ("time", "key", "level", "value key"),
    "median": ("time", "key", "level", "value key"),
}


def description(case: Case) -> dict[str, Any]:
    """What the bytes say."""
    states = states_of(case.sketch)
    if isinstance(states[0], CollectionState):
        return sites.description(case.about, states[0])
    params = states[0].params
    said = {"about": case.about, "params": params.to_dict()}
    if hasattr(params, "id_key"):
        said |= {"id_key": params.id_key.hex() if params.id_key else None}
    if hasattr(states[0], "decay"):
        digest = states[0].decay.steps(params.max_weight).digest.hex()
        said |= {"decay": states[0].decay.to_dict(), "decay digest": digest}
    said |= {"embed_params": case.embed_params, "fingerprint": params.fingerprint.hex()}
    floor = getattr(states[0], "clock", NO_WATERMARK)
    if isinstance(states[0], StrataState):  # names and watermarks of each
        said["strata"] = [
            [list(states[0].names(k)), states[0].marks[start:stop].tolist()]
            for k, (start, stop) in enumerate(pairwise(states[0].mark_offsets.tolist()))
        ]
    said |= {"clock": None if floor == NO_WATERMARK else floor, "digest": case.sketch.digest()}
    if getattr(states[0], "labels", None) is not None:
        said["labels"] = list(states[0].labels.texts)
    if getattr(states[0], "attributes", None) is not None:
        said["attributes of series"] = [list(each) for each in tuples_of(states[0].attributes)]
    for copy, state in enumerate(states):
        of_copy = f" of copy {copy}" if len(states) > 1 else ""
        marks = state.watermarks.tolist()
        if case.family in ("decay", "integral"):
            said[f"watermarks{of_copy}"] = [mark for mark in marks if mark > floor]
        else:
            said[f"watermarks{of_copy}"] = [None if m == NO_WATERMARK else m for m in marks]
        names = _FIRST.get(case.family, [n for n, held in _COLUMNS.items() if hasattr(state, held)])
        if records := getattr(state, "records", None):
            names = (*names[:-1], *(f"column {name}" for name, _ in records.types))
        columns = [_written(state, name) for name in names]
        rows = [list(row) for row in zip(*columns, strict=True)]
        said[f"rows{of_copy} ({', '.join(names)})"] = rows
    return said


def _written(state: Any, name: str) -> list[Any]:
    if name.startswith("column "):
        return column_values(state.records, name.removeprefix("column "))
    if name != "value":
        column: list[Any] = getattr(state, _COLUMNS[name]).tolist()
        return column
    values, missing = values_of(
        state.value_keys, state.params.value_type, getattr(state, "labels", None)
    )
    return [None if m else v for v, m in zip(values.tolist(), missing.tolist(), strict=True)]


def recipe_said(family: str, said: Mapping[str, Any]) -> Recipe:
    """The recipe that the JSON names."""
    form = {"family": family, "params": said["params"]}
    if "decay" in said:
        form["decay"] = said["decay"]
    key = said.get("id_key")
    return recipe_from_dict(form, id_key=bytes.fromhex(key) if key else None, table=TABLE)


def sketch_said(family: str, said: Mapping[str, Any]) -> Any:
    """The sketch, from the JSON alone."""
    recipe = recipe_said(family, said)
    if "entries" in said:
        return recipe.sketch_type.from_state(sites.state_said(recipe.params, said))
    empty = recipe.empty()
    states = [_state_said(recipe, said, state) for state in states_of(empty)]
    return recipe.sketch_type.from_state(states if hasattr(empty, "states") else states[0])


def _strata_said(recipe: Recipe, said: Mapping[str, Any], records: Any) -> dict[str, Any]:
    params: Any = recipe.params
    types = tuple((name, "text") for name in params.strata)
    columns = {name: [names[k] for names, _ in said["strata"]] for k, (name, _) in enumerate(types)}
    number = {tuple(names): k for k, (names, _) in enumerate(said["strata"])}
    rows = zip(*(column_values(records, name) for name in params.strata), strict=True)
    marks = [each for _, each in said["strata"]]
    return {
        "strata": encode_records(columns, types, len(marks)).canonical(),
        "stratum": np.array([number[row] for row in rows], np.int32),
        "mark_offsets": np.cumsum([0, *map(len, marks)]),
        "marks": np.array([mark for each in marks for mark in each], np.int64),
    }


def _state_said(recipe: Recipe, said: Mapping[str, Any], empty: Any) -> Any:
    copy = getattr(empty, "copy", 0)
    of_copy = f" of copy {copy}" if getattr(recipe.params, "samples", 1) > 1 else ""
    [title] = [name for name in said if name.startswith(f"rows{of_copy} (")]
    names = title.partition("(")[2].rstrip(")").split(", ")
    known = dict(zip(names, zip(*said[title], strict=True), strict=True)) if said[title] else {}
    held: dict[str, Any] = {_COLUMNS.get(name, name): column for name, column in known.items()}
    if values := held.pop("value", None):
        kind = recipe.params.value_type
        held["value_keys"] = [
            NO_WATERMARK
            if v is None
            else code_of(v, recipe.params.id_key)
            if kind == "label"
            else int(encode_values([v], kind)[0])
            for v in values
        ]
    changes: dict[str, Any] = {
        n: list(c) if n.startswith("column ") else np.array(c, getattr(empty, n).dtype)
        for n, c in held.items()
    }
    clock = said.get("clock")
    floor = NO_WATERMARK if clock is None else clock
    marks = np.full_like(empty.watermarks, floor)
    for level, mark in enumerate(said[f"watermarks{of_copy}"]):
        marks[level] = NO_WATERMARK if mark is None else mark
    changes["watermarks"] = marks
    if types := getattr(recipe.params, "columns", ()):
        columns = {name: changes.pop(f"column {name}", []) for name, _ in types}
        rows = len(known.get("time", ()))
        changes["records"] = encode_records(columns, types, rows).canonical()
        changes["value_keys"] = np.arange(rows)
    if "strata" in said:
        changes |= _strata_said(recipe, said, changes["records"])
    if "labels" in said:
        names = {code_of(each, recipe.params.id_key): each for each in said["labels"]}
        changes["labels"] = Labels.of(names, np.array(sorted(names), np.int64))
    if "attributes of series" in said:
        listed = said["attributes of series"]
        columns = dict(zip(recipe.params.attributes, zip(*listed, strict=True), strict=True))
        types = tuple((name, "text") for name in recipe.params.attributes)
        changes["attributes"] = encode_records(
            {name: list(column) for name, column in columns.items()}, types, len(listed)
        ).canonical()  # fmt: skip
    if hasattr(empty, "clock"):
        changes["clock"] = floor
    own = type(empty).__dataclass_fields__  # extremes are told no time, and discard nothing by one
    return replace(empty, **{name: each for name, each in changes.items() if name in own})


def to_json(described: Mapping[str, Any]) -> str:
    """JSON with a line for each field and each row."""
    lines = []
    for name, content in described.items():
        text = json.dumps(content)
        if (name.startswith("rows") or name == "entries") and content:
            text = "[\n    " + ",\n    ".join(map(json.dumps, content)) + "\n  ]"
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    changed = 0
    for case in cases():
        path = DIRECTORY / case.family / f"{case.name}.dsk"
        beside, described = path.with_suffix(".json"), description(case)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(case.blob)
            beside.write_text(to_json(described))
            print(f"{case.family}/{case.name}: {len(case.blob)} bytes")
            continue
        said = json.loads(beside.read_text())
        if path.read_bytes() != case.blob or said != {n: described[n] for n in said}:
            print(f"{case.family}/{case.name} would change; golden files do not", file=sys.stderr)
            changed += 1
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
