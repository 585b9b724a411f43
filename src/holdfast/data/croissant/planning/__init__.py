"""From a record set to one DuckDB query: scans, transforms, types, joins, splits."""
