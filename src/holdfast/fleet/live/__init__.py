"""The fleet as it runs: what to do about nodes, who decided it, and whether it was worth it."""
