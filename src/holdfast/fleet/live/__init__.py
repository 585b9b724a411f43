"""Clusters that are watched while they run: sources that are asked again and again, each into a spool."""
