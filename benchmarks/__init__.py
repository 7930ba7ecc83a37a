"""Speed and size, measured in one run on one core: ``python -m benchmarks``."""
