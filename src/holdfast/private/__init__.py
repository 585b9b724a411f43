"""Computing on secrets: `mpc`, between parties that see only their own input, and what is built on it."""
