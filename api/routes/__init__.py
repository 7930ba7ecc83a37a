"""The routes: they pass HTTP requests to the aggregator, and return its results."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel

from api.http.middleware import DirectRoute
from api.queries import GroupRequest, QueryRequest
from api.queries.configured import QuestionDefinition
from api.routes import (
    coverage,
    decays,
    devices,
    families,
    functions,
    influx,
    keys,
    live,
    lorawan,
    monitors,
    observations,
    otlp,
    page,
    prometheus,
    queries,
    reference,
    remote_write,
    service,
    sketches,
    sources,
    streams,
    topk,
    withdrawals,
)
from api.routes.decays import CurveRequest
from api.routes.keys import KeyCreation, KeyRotation
from api.schemas import StreamCreation

__all__ = ["DIRECT", "REQUESTS", "ROUTER", "ROUTERS", "TAGS"]

TAGS = [
    {"name": "streams", "description": "Parameters that the sketches of a stream share."},
    {"name": "sketches", "description": "Posts of sketches, and the merged sketch."},
    {"name": "observations", "description": "Posts of raw observations from small devices."},
    {"name": "queries", "description": "Results, each with an interval."},
    {"name": "monitors", "description": "Thresholds that are monitored while sources post rarely."},
    {"name": "functions", "description": "Functions over the counters of all sources."},
    {"name": "topk", "description": "The most frequent items over many sources."},
    {"name": "keys", "description": "Keys with roles and scopes."},
    {"name": "service", "description": "The process itself."},
]

ROUTERS: list[APIRouter] = [  # the busiest first: they are tried in order
    part.router
    for part in (
        sketches,
        streams,
        sources,
        coverage,
        devices,
        observations,
        lorawan,
        influx,
        otlp,
        remote_write,
        queries,
        live,
        monitors,
        prometheus,
        functions,
        topk,
        withdrawals,
        decays,
        families,
        keys,
        service,
        page,
        reference,
    )
]

# All routes in one inclusion, because FastAPI analyses every route at each inclusion.
ROUTER = APIRouter(generate_unique_id_function=lambda route: route.name)
for _router in ROUTERS:
    ROUTER.include_router(_router)

DIRECT: dict[str, APIRoute] = {
    route.path.rpartition("/")[2]: route
    for part in (sketches, observations)
    for route in part.router.routes
    if isinstance(route, DirectRoute) and route.is_direct
}
"""The routes that take posts, by the last part of their path."""

REQUESTS: list[type[BaseModel]] = [  # routes read them from bodies, no signature has them
    QueryRequest,
    GroupRequest,
    CurveRequest,
    StreamCreation,
    KeyCreation,
    KeyRotation,
    QuestionDefinition,
]
