"""Automata over tokens: every token sequence, or every canonical one, that spells a text of a language."""
