"""Records calls of kernels with what they give: ``recording.py`` says of what.

From the root of a checkout: ``PYTHONPATH=.:tests python tests/native/record.py``. It is done again
only to follow a change of what kernels take.
"""

from __future__ import annotations

from native import building, recording


def main() -> None:
    """Write the files."""
    for table in building.TABLES:
        building.recorded(table).write_text(recording.recorded(table), encoding="utf-8")


if __name__ == "__main__":
    main()
