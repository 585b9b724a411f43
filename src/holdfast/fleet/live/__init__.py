"""The fleet as it runs: sources asked again and again, and what to do about nodes."""
