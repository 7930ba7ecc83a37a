"""Records the answers anew: ``python -m tests.recorded [http python command sql openapi]``.

What the aggregator, the library, the program and the SQL functions answer to many small questions,
as it is once and for all. A test asks the same again (``test_answers.py``; of SQL
``tests/spark/test_recorded_answers.py``) and names every case whose answer is another one: the net
under a change that should change nothing.

Where an answer is meant to change, record that kind anew and read what changed:

    python -m tests.recorded http && git diff --stat

prints each difference before it writes. The cases are made by code from the sketches, decays and
questions in ``material.py``, one module for each way to ask: ``over_http.py``, ``in_python.py``,
``on_the_command_line.py``, ``in_sql.py``. ``entries.py`` says what is normalised and how numbers
are compared, ``interface.py`` how the HTTP description may grow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from tests.recorded import entries, in_python, in_sql, interface, on_the_command_line, over_http
from tests.recorded.entries import Entry


def _http() -> list[Entry]:
    return [entry for record in over_http.SCENES.values() for entry in record()]


def _sql() -> list[Entry]:
    from spark_jobs.session import spark_session

    with spark_session("recorded answers") as session:
        return in_sql.record(session)


RECORDERS: dict[str, Callable[[], list[Entry]]] = {
    "http": _http,
    "python": in_python.record,
    "command": on_the_command_line.record,
    "sql": _sql,
}


def main(kinds: Sequence[str]) -> None:
    """Record these kinds, or all, and say what is another than before."""
    for kind in kinds or (*RECORDERS, "openapi"):
        if kind == "openapi":
            described = over_http.description()
            changed = [str(each) for each in interface.changes(interface.read(), described)]
            interface.write(described)
        else:
            found = RECORDERS[kind]()
            changed = entries.compare(entries.read(kind), found)
            entries.write(kind, found)
        print(f"{kind}: {len(changed)} differences", *changed, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
