"""Files at URLs: fetched in parallel, resumed, proved and kept; or read in place by ranges."""
