"""How the project is set up, built and drawn."""
