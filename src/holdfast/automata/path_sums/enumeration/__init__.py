"""Exact numbers of paths, and paths by their rank."""
