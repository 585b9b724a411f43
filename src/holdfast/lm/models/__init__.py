"""Backends: one protocol, `LanguageModel`, in front of n-grams, Hugging Face and servers."""
