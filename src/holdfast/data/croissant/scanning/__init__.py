"""Files of each format as relations of DuckDB, and values from what stands in them."""
