"""Partition refinement: states that behave alike become one state."""
