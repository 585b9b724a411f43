"""The operator's web console: `holdfast fleet serve STORE`."""
