"""Texts from others: :mod:`~decaysketch.core.text.grammar`, the only reader of untrusted text, and
:mod:`~decaysketch.core.text.predicate`, predicates over value and weight.
"""
