"""Monitors over bad networks, and what they save on real logs."""
