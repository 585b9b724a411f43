"""Zips, tars and compressed files: listed and read in place, hostile ones refused."""
