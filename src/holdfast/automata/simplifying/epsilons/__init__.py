"""Closures over epsilon arcs."""
