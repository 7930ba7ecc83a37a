"""Queries and answers as they travel, and how one is turned into the other.

- ``decays``: how a request says how weights fall with age
- ``requests``: what may be asked
- ``answers``: what is answered
- ``groups``: several streams asked as one
- ``planning``: a request checked against the stream, its clock read, its answers named
- ``evaluation``: its answers computed
- ``caching``: answers that were given, and their names
- ``reading`` / ``desk``: a request out of a URL; and the way from there to the answer
- ``document``: the table of questions in the documents
"""

from __future__ import annotations

from api.queries.caching import is_known
from api.queries.desk import Answers, Desk
from api.queries.reading import asked_in_body, body_described, read_request
from api.queries.requests import GroupRequest, QueryRequest

__all__ = [
    "Answers",
    "Desk",
    "GroupRequest",
    "QueryRequest",
    "asked_in_body",
    "body_described",
    "is_known",
    "read_request",
]
