"""The routes: what HTTP says, handed to the aggregator, and its answer as HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes import queries, service, sketches, streams

__all__ = ["TAGS", "router"]

TAGS = [
    {"name": "streams", "description": "Parameters that the sketches of a stream share."},
    {"name": "sketches", "description": "Sketches in, the merged sketch out."},
    {"name": "queries", "description": "Answers, each with an interval."},
    {"name": "service", "description": "The process itself."},
]

router = APIRouter()
for part in (streams, sketches, queries, service):
    router.include_router(part.router)
