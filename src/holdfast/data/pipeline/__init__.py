"""Finding and removing bottlenecks of input pipelines."""
