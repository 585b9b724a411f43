"""Runs of holdfast.federated whose clients are Flower's SuperNodes."""
