"""Ranges of records, from disks and object stores, checked when they arrive."""
