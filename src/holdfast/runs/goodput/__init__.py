"""Where the wall time of a run went, what its ETTR was and could be, and the report."""
