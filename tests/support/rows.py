"""One test for many rows of a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["for_each"]


def for_each(names: str, rows: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Use like ``pytest.mark.parametrize`` where a row takes milliseconds.

    A test for each row costs more than such a row itself, and a fixture for each test more still.
    All rows share the fixtures. The test runs every row, and lists the rows that fail.

    Args:
        names: argument names, separated by commas.
        rows: one value per row, or a tuple where there are several names.
    """
    split = [name.strip() for name in names.split(",")]
    table = [row if len(split) > 1 else (row,) for row in rows]

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(check)
        fixtures = [each for name, each in signature.parameters.items() if name not in split]

        def test(*args: Any, **fixed: Any) -> None:
            faults = []
            for row in table:
                given = dict(zip(split, row, strict=True))
                try:
                    check(*args, **fixed, **given)
                except Exception as fault:
                    fault.add_note(f"row: {given}")
                    faults.append(fault)
            if faults:
                raise ExceptionGroup(f"{len(faults)} of {len(table)} rows fail", faults)

        for field in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(test, field, getattr(check, field))
        test.__dict__.update(check.__dict__)  # marks
        test.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        assert table, f"{check.__name__} has no rows"
        return test

    return decorate
