"""Weighted samples of the texts of a query."""
