"""Whether a dataset is what was written, and mending it where it is not."""
