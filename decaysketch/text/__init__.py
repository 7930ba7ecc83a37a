"""Texts from others: :mod:`~decaysketch.text.grammar`, the only reader of untrusted text, and
:mod:`~decaysketch.text.predicate`, predicates over value and weight.
"""
