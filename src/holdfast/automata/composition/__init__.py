"""Composition: the filter, the kernels, trimming, and the forms that decoders need."""
