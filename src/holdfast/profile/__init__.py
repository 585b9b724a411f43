"""Where the arithmetic, bytes and time of a model go (`ops`), and how far its numbers deviate (`numerics`).

    from holdfast import profile
    result = profile.profile(module, x)       # FLOPs and bytes, without running it
    result.by_class(), result.attention, result.roofline("h100-sxm")

The names of `ops` are those of this package; those of `numerics` keep their own.
"""

from holdfast.profile import ops

__all__ = ops.__all__
__getattr__ = ops.__getattr__
