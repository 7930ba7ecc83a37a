"""What every family stands on, and no family: parameters, hashing, columns, times, watermarks."""
