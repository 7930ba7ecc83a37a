"""The description of the HTTP interface, before and now: what was added, and what was broken.

A client that was written against the recorded description must find all of it in the new one.
There may be more: paths, statuses, parameters and fields that need not be given, members of an
enumeration or of a union, schemas. Everything else that is not as it was breaks the record, the
words as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.recorded.entries import FOLDER, differences

__all__ = ["Change", "changes", "read", "write"]

_FILE = FOLDER / "openapi.json"
# Objects whose members have names of their own. Any other new member says more of the same thing.
_OPEN = {"content", "mapping", "paths", "properties", "responses", "schemas"}
# Lists in which order says nothing, and that may grow.
_UNORDERED = {"anyOf", "enum", "oneOf", "tags"}

Path = tuple[str, ...]


class Change(NamedTuple):
    """One difference. An addition is allowed, anything else is not."""

    where: Path
    what: str
    allowed: bool = False

    def __str__(self) -> str:
        return f"{' > '.join(self.where)}: {self.what}"


def read() -> dict[str, Any]:
    """The recorded description; an empty one where it was never recorded."""
    found: dict[str, Any] = json.loads(_FILE.read_bytes()) if _FILE.exists() else {}
    return found


def write(description: dict[str, Any]) -> None:
    """Record it anew."""
    FOLDER.mkdir(exist_ok=True)
    _FILE.write_text(json.dumps(description, indent=1, sort_keys=True) + "\n")


def changes(recorded: dict[str, Any], found: dict[str, Any]) -> list[Change]:
    """Everything that differs between two descriptions."""
    return list(_changes(_comparable(recorded), _comparable(found), (), _asked(found)))


def _asked(description: dict[str, Any]) -> frozenset[str]:
    """Schemas that a request is made of, directly or not."""
    schemas = description.get("components", {}).get("schemas", {})
    waiting: list[Any] = [
        operation.get("requestBody")
        for methods in description.get("paths", {}).values()
        for operation in methods.values()
    ]
    known: set[str] = set()
    while waiting:
        new = set(_references(waiting.pop())) - known
        known |= new
        waiting += [schemas.get(name) for name in new]
    return frozenset(known)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict) and "$ref" in node:
        yield node["$ref"].rpartition("/")[2]
    for child in node.values() if isinstance(node, dict) else node or ():
        if isinstance(child, (dict, list)):
            yield from _references(child)


def _comparable(node: Any) -> Any:
    """A constant is an enumeration of one member; parameters have names."""
    if isinstance(node, list):
        return [_comparable(child) for child in node]
    if not isinstance(node, dict):
        return node
    node = {name: _comparable(child) for name, child in node.items()}
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if isinstance(node.get("parameters"), list):
        node["parameters"] = {f"{each['in']} {each['name']}": each for each in node["parameters"]}
    return node


def _changes(recorded: Any, found: Any, where: Path, asked: frozenset[str]) -> Iterator[Change]:
    name = where[-1] if where else ""
    if isinstance(recorded, dict) and isinstance(found, dict):
        recorded, found = (_with_lists(each, recorded, found) for each in (recorded, found))
        for key in recorded | found:
            if key not in found:
                yield Change((*where, key), "removed")
            elif key not in recorded:
                yield Change((*where, key), "added", _may_be_added(where, found[key]))
            else:
                yield from _changes(recorded[key], found[key], (*where, key), asked)
    elif name == "required" and isinstance(recorded, list):
        answered = where[:2] == ("components", "schemas") and where[2] not in asked
        yield from (Change(where, f"{each!r} removed") for each in recorded if each not in found)
        for each in found:
            if each not in recorded:
                yield Change(where, f"{each!r} added", answered)
    elif name in _UNORDERED and isinstance(recorded, list) and len(recorded) != len(found):
        gone = [each for each in recorded if each not in found]
        yield from (Change(where, f"{json.dumps(each)} removed") for each in gone)
        for each in found:
            if each not in recorded:
                yield Change(where, f"{json.dumps(each)} added", not gone)
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for place, (before, now) in enumerate(zip(recorded, found, strict=True)):
            yield from _changes(before, now, (*where, str(place)), asked)
    elif recorded != found:
        for line in differences(recorded, found):
            yield Change(where, line.removeprefix(": "))


def _with_lists(
    node: dict[str, Any], recorded: dict[str, Any], found: dict[str, Any]
) -> dict[str, Any]:
    """With a list of required fields, if only the other has one: none is required."""
    lists = any(isinstance(each.get("required"), list) for each in (recorded, found))
    return {"required": []} | node if lists else node


def _may_be_added(where: Path, member: Any) -> bool:
    if where and where[-1] == "parameters":
        return not member.get("required", False)
    is_method = len(where) == 2 and where[0] == "paths"
    return is_method or (bool(where) and where[-1] in _OPEN)
