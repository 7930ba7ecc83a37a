"""Query names and forms from other tools, and the query that each one means.

:func:`meant` translates a name. :func:`rewritten` translates a query as text, such as ``avg(x)``,
``p95(ms)``, ``count(distinct x)`` or ``selectivity(temp > 25)``. Every interface takes its remedies
from here.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Mapping

from decaysketch.core.text.grammar import Formula, split_commas
from decaysketch.errors import ParameterError

__all__ = ["meant", "percentile", "remedy_of", "rewritten"]

_PERCENTILE = re.compile(r"p(\d{1,2}(?:[._]\d+)?|100|99\d+)", re.IGNORECASE)
_NAMES = {
    "avg": "mean", "average": "mean", "std": "stddev", "stdev": "stddev", "sd": "stddev",
    "var": "variance", "percentile": "quantile", "percentiles": "quantile",
    "approx_quantile": "quantile", "approx_percentile": "quantile", "topk": "heavy_hitters",
    "top_k": "heavy_hitters", "maximum": "max", "minimum": "min", "corr": "correlation",
    "covar": "covariance", "cov": "covariance", "fraction": "mean", "proportion": "mean",
}  # fmt: skip
_DISTINCT = (
    "count_distinct", "distinct", "distinct_count", "uniq", "nunique", "approx_distinct",
    "approx_count_distinct",
)  # fmt: skip
_CALL = re.compile(
    r"\s*([A-Za-z_]\w*(?:\.\d+)?)\s*(?:\((.*)\))?\s*(group)?\s*", re.DOTALL | re.ASCII
)
_COUNT = re.compile(r"\d+")
_NUMBER = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)


def meant(word: str) -> str | None:
    """Return the query for a name that other tools use. None if unknown.

    Example:
        >>> meant("avg"), meant("p95"), meant("x")
        ('mean', 'quantile', None)
    """
    return "quantile" if percentile(word) else _NAMES.get(word.lower())


def percentile(word: str) -> str | None:
    """Return the share for the name of a percentile. None if it is no such name.

    Example:
        >>> percentile("p95"), percentile("p5"), percentile("p99.9"), percentile("p999")
        ('0.95', '0.05', '0.999', '0.999')
    """
    found = _PERCENTILE.fullmatch(word)
    if found is None:
        return None
    digits = found[1].replace("_", ".")
    if digits.startswith("99") and digits.isdigit():
        return f"0.{digits}"
    return _share(digits)


def _share(per_cent: str) -> str:
    return f"{float(per_cent) / 100:.12g}"


def rewritten(parts: Mapping[str, str], known: Iterable[str]) -> str | None:
    """Return the query text that a text in the form of another tool probably means. None: unknown.
    The text may still be rejected.

    Args:
        parts: the aggregate, by the empty name, and the clauses by their names.
        known: all query names.
    """
    call = _CALL.fullmatch(parts[""])
    if call is None or (call[3] and "by" not in parts):
        return None
    inner = (call[2] or "").strip()
    given = [piece.strip() for piece in split_commas(inner)] if inner else []
    clauses = {name: part for name, part in parts.items() if name}
    head = _rewritten(call[1], given, clauses, list(known))
    if head is None:
        return None
    order = ("set", "by", "where", "versus", "how", "weight", "limit", "order")
    return " ".join([head, *(f"{name} {clauses[name]}" for name in order if name in clauses)])


def _rewritten(
    word: str, given: list[str], clauses: dict[str, str], known: list[str]
) -> str | None:
    """Return an aggregate with its arguments. Adds to the clauses."""
    name, column = word.lower(), given[0] if given else ""
    distinct = column.lower().startswith("distinct ") and name == "count"
    if (distinct or name in _DISTINCT) and "by" not in clauses:
        clauses["by"] = column[len("distinct ") :].strip() if distinct else ", ".join(given)
        return "count()"
    if name in ("topk", "top_k", "top") and given and not {"by", "limit"} & set(clauses):
        column, *number = sorted(given, key=lambda piece: _COUNT.fullmatch(piece) is not None)
        clauses |= {"by": column} | ({"limit": number[0]} if number else {})
        return "count()"
    if name in ("countif", "count_if"):
        _add_condition(clauses, ", ".join(given))
        return "count()"
    if name in ("count", "rate") and given:
        if column not in ("*", "1"):
            if len(given) > 1 or _tree(column) is None:
                return None
            _add_condition(clauses, f"{column} is not null")
        return f"{name}()"
    if name == "selectivity":
        return f"mean({', '.join(given)})" if _reads_columns(", ".join(given)) else None
    if share := percentile(word):
        return f"quantile({', '.join([*given, share])})"
    near = next(iter(difflib.get_close_matches(name, known, n=1)), None)
    query = name if name in known else _NAMES.get(name, near)
    if query == "quantile":
        given = _shares_last(given)
    if query is None:
        return None
    return f"{query}({', '.join(given)})" if given else query


def _shares_last(given: list[str]) -> list[str]:
    """Return a quantile's arguments: the column, then shares. 95 and p95 are 0.95."""
    shares = [percentile(piece) or piece for piece in given]
    numbers = [piece for piece in shares if _NUMBER.fullmatch(piece)]
    per_cent = [_share(piece) if float(piece) > 1 else piece for piece in numbers]
    return [piece for piece in shares if piece not in numbers] + per_cent


def _add_condition(clauses: dict[str, str], condition: str) -> None:
    before = clauses.get("where")
    clauses["where"] = condition if before is None else f"({before}) and {condition}"


def remedy_of(condition: str) -> str:
    """Return the remedy for a predicate over ``v`` and ``w`` that is a condition over columns, to
    append to its error. Empty: it is none.
    """
    return f"; did you mean 'mean({condition})'?" if _reads_columns(condition) else ""


def _reads_columns(condition: str) -> bool:
    """Return whether a condition names columns, and not the value ``v`` of a stream without any."""
    tree = _tree(condition)
    if tree is None:
        return False
    nodes = list(ast.walk(tree))
    called = [id(node.func) for node in nodes if isinstance(node, ast.Call)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}
    return bool(names - {"w"}) and "v" not in names


def _tree(text: str) -> ast.expr | None:
    """Return an expression's tree, unchecked. None: it cannot be read."""
    try:
        return Formula("the expression", text, None, quoted=True).tree()
    except ParameterError:
        return None
