"""The files that a description names: where they are, listed without fetching, proved, read."""
