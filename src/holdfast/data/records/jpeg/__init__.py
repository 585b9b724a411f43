"""JPEG as far as records need it: markers, scans, lossless transcoding, decoding."""
