"""Images out of a dataset, as files or tars."""
