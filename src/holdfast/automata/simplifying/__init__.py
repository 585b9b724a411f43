"""Equivalent machines that are smaller or deterministic."""
