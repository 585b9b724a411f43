"""The format on disk: one record a file, and the manifest that names them (`docs/formats/pcr.md`)."""
