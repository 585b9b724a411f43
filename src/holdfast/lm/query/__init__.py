"""Asking a language model with regular expressions: how probable, which texts, how many."""
