"""Studies of accuracy, each one command with seeds fixed beforehand; see ``docs/estimators.md``."""
