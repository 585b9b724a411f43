"""Computing on secrets: `mpc`, between parties that see only their own input, and what is built on it."""

from holdfast.private import bandits, mpc

__all__ = ["bandits", "mpc"]
