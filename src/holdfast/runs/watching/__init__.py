"""Alarms and metrics of a run while it runs."""
