"""The interface between families and all other code."""
