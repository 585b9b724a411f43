"""From a source to a dataset: transcoded in threads, written atomically, resumed after a kill."""
