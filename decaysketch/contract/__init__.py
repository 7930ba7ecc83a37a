"""What a family hands in, and all that others know of it."""
