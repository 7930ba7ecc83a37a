"""Queries and answers as they travel, and how one is turned into the other.

- ``decays``: how a request says how weights fall with age
- ``requests``: what may be asked
- ``answers``: what is answered
- ``groups``: several streams asked as one
- ``planning``: a request checked against the stream, its clock read, its answers named
- ``evaluation``: its answers computed
- ``caching``: answers that were given, and their names
- ``answering``: the way from a request to its answers
- ``document``: the table of questions in the documents
"""

from __future__ import annotations

from api.queries.answering import Answerer, Answers
from api.queries.caching import is_known
from api.queries.requests import GroupRequest, QueryRequest

__all__ = ["Answerer", "Answers", "GroupRequest", "QueryRequest", "is_known"]
