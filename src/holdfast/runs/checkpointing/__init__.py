"""Checkpoints that exist or do not: written in the background, verified, published atomically."""
