"""The fleet as it runs: sources asked again and again, what to do about nodes, and whether it was worth it."""
