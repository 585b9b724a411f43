"""Strings of labels as nodes of a tree, so that equal strings are equal numbers."""
