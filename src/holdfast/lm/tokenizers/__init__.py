"""Tokenizers: what each token spells, how a text is split, and the merges behind it."""
