"""The study of damaged spools: a spool loses one record, a database may lose more."""

from __future__ import annotations

from quality.spool import spool_losses, sqlite_losses


def test_a_flipped_bit_costs_a_spool_one_record() -> None:
    assert spool_losses(20, seed=1) == {1: 20}


def test_a_flipped_bit_in_a_write_ahead_log_costs_what_follows() -> None:
    lost = sqlite_losses(20, (), seed=1)
    assert sum(count for records, count in lost.items() if records > 1) > 5
