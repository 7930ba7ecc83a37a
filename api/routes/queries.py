"""Questions, and answers each with an interval."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api import queries, schemas
from api.errors import InvalidRequestError
from api.routes.common import TheAggregator, TheSettings, json_only, problems

__all__ = ["router"]

router = APIRouter()


@router.post(
    "/v1/streams/{name}/query",
    tags=["queries"],
    summary="Ask for decayed aggregates",
    dependencies=[Depends(json_only)],
    responses=problems(
        s404="No such stream, or nothing came from one of the sources.",
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="A query is malformed, names an aggregate that the family does not have, or asks for "
        "what was discarded at every level.",
    ),
)
def post_query(
    name: schemas.StreamName,
    request: queries.QueryRequest,
    aggregator: TheAggregator,
    settings: TheSettings,
) -> queries.QueryResponse:
    """Any aggregate under any decay; nothing has to be declared beforehand. All queries of a
    request are answered from one and the same sketch, in their order, or none is."""
    if len(request.queries) > settings.max_queries:
        raise InvalidRequestError(
            f"queries has {len(request.queries)} entries; at most {settings.max_queries} are "
            "taken in one request"
        )
    stream = aggregator.stream(name)
    queries.check(stream, request)
    return queries.answer(stream, stream.snapshot(request.sources), request)
