"""Best-first search over the strings of a machine."""
