"""Choosing how much of each image a training run reads."""
