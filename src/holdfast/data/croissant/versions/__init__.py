"""Descriptions over time: to a newer version of the format, and what a new version of the data changed."""
