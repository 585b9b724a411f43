"""Best-first search over the paths of a machine."""
