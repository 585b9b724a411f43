"""Best-first search over token prefixes: the most probable texts, and bounds of their mass."""
