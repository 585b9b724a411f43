"""Where the arithmetic, bytes and time of a model go, and how far its numbers deviate.

from holdfast import profile
result = profile.profile(module, x)       # FLOPs and bytes, without running it
result.by_class(), result.attention
"""
