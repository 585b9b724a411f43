"""Record sets written into files of one kind, described anew."""
