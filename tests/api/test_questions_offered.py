"""What can be asked, as programs read it."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from families import CASES, WINDOW
from fastapi.testclient import TestClient
from service import NOW

from api.routes import page
from decaysketch.core.sizing import most_id_bits
from decaysketch.families import FAMILIES
from decaysketch.query.catalog import QUESTIONS

URL = "/v1/families"

_UNSAID = {"objectives", "attributes"}
"""Parameters that a stream does not show where they have their default."""


def families(client: TestClient) -> dict[str, Any]:
    content: dict[str, Any] = client.get(URL).json()["families"]
    return content


def test_every_family_has_its_questions(client: TestClient) -> None:
    found = families(client)
    assert {name: set(each["questions"]) for name, each in found.items()} == {
        name: type(case.build(0, 0)).questions for name, case in CASES.items()
    }


def test_a_question_says_what_it_is_asked_with_and_answers(client: TestClient) -> None:
    questions = families(client)["decay"]["questions"]
    assert questions["mean"]["arguments"] == {}
    assert questions["mean"]["beside"] == [{"name": "estimate", "kind": "estimate"}]
    assert questions["mean"]["rows"] is None
    phi, limit = questions["heavy_hitters"]["arguments"].values()
    assert (phi["required"], phi["least"], phi["below"], phi["most"]) == (True, 0, 1, None)
    assert (limit["required"], limit["default"], limit["most"]) == (False, 10_000, 10_000)
    assert questions["histogram"]["rows"] == "bins"
    assert [each["name"] for each in questions["histogram"]["columns"]] == ["low", "high", "share"]
    assert list(questions["total"]["arguments"]) == []  # a function does not travel


def test_what_it_says_can_be_asked(client: TestClient) -> None:
    for family, offered in families(client).items():
        case = CASES[family]
        assert client.put(f"/v1/streams/{family}", json=case.creation).status_code == 201
        chosen = {"decay": WINDOW.to_dict()} if case.chooses else {}
        queries = [
            {"aggregate": name, "now": NOW, **chosen}
            | {key: each["example"] for key, each in question["arguments"].items()
               if each["example"] is not None}
            | {key: family for key, each in question["arguments"].items()
               if each["kind"] == "sketch"}
            for name, question in offered["questions"].items()
        ]  # fmt: skip
        response = client.post(f"/v1/streams/{family}/query", json={"queries": queries})
        assert response.status_code == 200
        for answer, question in zip(
            response.json()["answers"], offered["questions"].values(), strict=True
        ):
            parts = {each["name"] for each in question["beside"]}
            parts |= set() if question["rows"] is None else {question["rows"]}
            assert parts == set(answer) - {"aggregate", "now", "verified"}


def test_it_is_sent_once(client: TestClient) -> None:
    first = client.get(URL)
    again = client.get(URL, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    offered = first.json()["families"].values()
    of_one_sketch = {name for name, each in QUESTIONS.items() if each.asked_of != "sources"}
    assert set().union(*(each["questions"] for each in offered)) == of_one_sketch


def test_every_family_says_what_it_is(client: TestClient) -> None:
    """So that a client knows facts of families instead of their names."""
    for name, found in families(client).items():
        family = FAMILIES[name]
        assert found["input"] == asdict(family.input)
        assert found["promises"] == asdict(family.promises)
        assert found["description"].startswith(f"`{family.sketch.__name__}`")
        options = found["options"]
        assert set(options) == {each.name for each in family.options}
        required = {each for each, option in options.items() if option["required"]}
        given = {each: family.documented["params"][each] for each in required}
        created = {"family": name, **family.documented, "params": given}
        response = client.put(f"/v1/streams/{name}", json=created)
        assert response.status_code == 201
        params = response.json()["params"]
        for each in options.keys() - required - {"id_bits"}:
            default = options[each]["default"]
            said = {} if each in _UNSAID else {each: default}  # where it is the default
            assert params.get(each) == said.get(each), each
        if "id_bits" in options:  # the most that there is room for
            assert options["id_bits"]["default"] is None
            assert params["id_bits"] == most_id_bits(params["max_weight"])


def test_the_page_names_no_family() -> None:
    """But for what questions are called as well: it reads what families say of themselves."""
    folder = Path(page.__file__).parents[1] / "page"
    names = "|".join(FAMILIES.keys() - QUESTIONS.keys() - {"decay"})
    for script in folder.glob("*.js"):
        text = script.read_text()
        assert not re.search(rf'"({names})"', text)
        assert not re.search(r'family [!=]==? "|\.includes\([\w.]*family\)', text)
