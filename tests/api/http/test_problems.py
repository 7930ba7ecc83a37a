"""The table from exception to status: every refusal has a row."""

from __future__ import annotations

import inspect

import pytest
import sqlalchemy.exc

from api import errors
from api.http import refusals
from api.http.problems import TABLE, answer_to
from api.journal import model

REFUSALS = {
    each
    for module in (errors, refusals, model)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, (errors.ServiceError, model.StorageError, model.ReplayError))
    and each is not errors.ServiceError
}


@pytest.mark.parametrize("refusal", sorted(REFUSALS, key=str), ids=lambda each: each.__name__)
def test_every_refusal_has_a_status(refusal: type[Exception]) -> None:
    assert any(cls in TABLE for cls in refusal.__mro__)


@pytest.mark.parametrize(
    "error",
    [
        model.StorageError("SELECT secret"),
        model.ReplayError("/srv/secret"),
        sqlalchemy.exc.OperationalError("SELECT secret", {}, Exception("secret")),
        KeyError("secret"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_text_of_what_lies_below_leaves_the_process(error: Exception) -> None:
    answer = answer_to(error)
    assert answer.status_code == (500 if isinstance(error, KeyError) else 503)
    assert ("retry-after" in answer.headers) == (answer.status_code == 503)
    assert b"secret" not in bytes(answer.body)
