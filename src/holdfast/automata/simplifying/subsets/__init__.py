"""Subset construction: many paths with one input become one path."""
