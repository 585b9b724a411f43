"""From a folder of data to a description that loads."""
