"""Progressive compressed records: one dataset that serves every fidelity with sequential reads."""
