"""Continuous monitoring over many sites: what is sent, and whether promises hold."""
