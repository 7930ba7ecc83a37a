"""The description against the server: whatever is made from it gets an answer that it allows.

``DECAYSKETCH_EXAMPLES=1000`` makes so many requests for each operation instead of a few, beside all
those that cover its schemas, of which the others are an even share where they are thousands.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import positive_data_acceptance
from service import OCTETS, PARAMS, build

from api.access.keys import Role, mint
from api.access.store import SqlKeyStore
from api.app import create_app
from api.settings import Settings

EXAMPLES = int(os.environ.get("DECAYSKETCH_EXAMPLES", "4"))
COVERING = 250 * EXAMPLES
FEW_KINDS = 4  # of queries
KNOWN = "known"
ROW, TOKEN = mint(role=Role.ADMIN, scope=["*"], now_us=0)

# Domains of parameters are checked by the library; the description does not say all of them.
EXCLUDED = [positive_data_acceptance]


@schemathesis.serializer(
    "application/vnd.apache.arrow.stream",
    "application/vnd.decaysketch.sketches",
    "application/x-protobuf",
)
def as_bytes(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes) else str(value).encode()


@schemathesis.serializer("application/x-ndjson")
def as_lines(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def described() -> dict[str, Any]:
    """What the server says of itself; but the queries of a group and of a configured question are
    those of a stream, which is asked every kind of them, so that here a few are enough."""
    description: dict[str, Any] = create_app(Settings(auth="keys")).openapi()
    models = description["components"]["schemas"]
    queries = models["GroupRequest"]["properties"]["queries"]["items"]
    for union in (queries, models["QuestionDefinition"]["properties"]["query"]):
        assert len(union["oneOf"]) > FEW_KINDS
        union["oneOf"] = union["oneOf"][:FEW_KINDS]
        kept = {each["$ref"] for each in union["oneOf"]}
        mapping = union["discriminator"]["mapping"]
        union["discriminator"]["mapping"] = {
            name: model for name, model in mapping.items() if model in kept
        }
    return description


schema = schemathesis.openapi.from_dict(described()).exclude(
    operation_id=["get_events", "get_live"]  # answers that do not end
)


@schema.auth()
class Bearer:
    """The key of an admin, where a request is to have one that is valid."""

    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return TOKEN

    def set(self, case: schemathesis.Case, data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = f"Bearer {data}"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server over sockets that knows the key."""
    data = tmp_path_factory.mktemp("schemathesis") / "aggregator.sqlite3"
    asyncio.run(_put_key(f"sqlite:///{data}"))
    app = create_app(Settings(data=str(data), auth="keys", host="0.0.0.0", read_timeout_s=5))
    config = uvicorn.Config(
        app,
        port=0,
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        _fill(url)
        yield url
    finally:
        server.should_exit = True
        thread.join()


def _fill(url: str) -> None:
    """A stream that holds something."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx2.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
        created = client.put(f"/v1/streams/{KNOWN}", json={"params": PARAMS.to_dict()})
        assert created.status_code == 201, created.text
        posted = client.post(
            f"/v1/streams/{KNOWN}/sketches?source=s", content=build(1).to_bytes(), headers=OCTETS
        )
        assert posted.status_code == 200, posted.text


async def _put_key(database: str) -> None:
    store = SqlKeyStore(database)
    await store.create()
    await store.put(ROW)
    await store.close()


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def is_answered_as_described(case: schemathesis.Case, url: str) -> None:
    sound = case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE
    if sound and case.method != "DELETE" and "name" in case.path_parameters:
        case.path_parameters["name"] = KNOWN
    case.call_and_validate(base_url=url, excluded_checks=EXCLUDED)


@pytest.fixture(scope="module")
def requests() -> dict[str, Callable[..., None]]:
    """What is asked of each operation; found here, and not by each process that collects tests.

    ``schema.parametrize()`` finds it as it collects, which takes five seconds.
    """
    load_all_checks()
    found = get_all_tests(
        schema=schema, test_func=is_answered_as_described, settings=None, given_kwargs=None
    )
    return {operation.label: thinned(test) for operation, test in (each.ok() for each in found)}


def thinned(test: Callable[..., None]) -> Callable[..., None]:
    """At most ``COVERING`` of the requests that cover the schemas: of a question, five thousand."""
    examples = getattr(test, "hypothesis_explicit_examples", [])
    examples[:] = examples[:: -(-len(examples) // COVERING) or 1]
    return test


@pytest.mark.parametrize("label", [each.ok().label for each in schema.get_all_operations()])
def test_answers_are_as_described(
    label: str, requests: dict[str, Callable[..., None]], url: str
) -> None:
    requests[label](url=url)
