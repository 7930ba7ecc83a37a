"""Protocols from the papers, as baselines for studies. No program of the product runs them."""
