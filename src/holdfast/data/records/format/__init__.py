"""The format on disk: one record per file, and the manifest that lists them (`docs/formats/pcr.md`)."""
