"""Logs -> the cause of a failure, with its evidence."""
