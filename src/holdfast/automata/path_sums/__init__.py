"""Sums over paths: distances, best paths, counts, samples."""
