"""Sums inside a strongly connected component as systems of linear equations."""
