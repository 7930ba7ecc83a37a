"""The common base of all families: parameters, hashing, columns, times, watermarks."""
