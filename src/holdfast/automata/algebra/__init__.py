"""Union, concatenation and their like; what machines have in common; whether two are the same."""
