"""Canonical encodings: automata over the token sequences that the tokenizer itself produces."""
