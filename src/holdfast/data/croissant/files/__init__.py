"""The files that a description names: fetched, proved, listed, and read in place out of archives."""
