"""Texts of others: :mod:`~decaysketch.text.grammar`, the one guarded door, and
:mod:`~decaysketch.text.predicate`, predicates over value and weight."""
