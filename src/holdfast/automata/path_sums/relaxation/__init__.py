"""Least costs inside a component, and the heap of every search."""
