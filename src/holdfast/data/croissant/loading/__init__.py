"""Datasets and lazy record sets, and what they turn into: Arrow, Polars, torch, `datasets`."""
