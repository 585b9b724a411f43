"""Regular expressions as automata over bytes: the exact full-match language."""
