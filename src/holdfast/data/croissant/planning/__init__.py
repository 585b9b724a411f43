"""From a record set to one DuckDB query: sources, joins, filters, splits, nesting."""
