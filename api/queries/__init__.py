"""Queries and results as they travel, and the conversion from one to the other.

- ``decays``: decays in requests
- ``requests``: the possible queries
- ``answers``: the results, their names, and a cache of earlier ones
- ``groups``: several streams queried as one
- ``planning``: a request checked against the stream, its clock read, its results named
- ``evaluation``: its results computed
- ``answering``: the way from a request to its results
- ``document``: the table of queries in the documentation
"""

from __future__ import annotations

from api.queries.answering import Answerer, Answers
from api.queries.answers import is_known
from api.queries.requests import GroupRequest, QueryRequest

__all__ = ["Answerer", "Answers", "GroupRequest", "QueryRequest", "is_known"]
