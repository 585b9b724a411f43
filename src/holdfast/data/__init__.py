"""Training data: described, stored, fed and chosen.

from holdfast.data import records
"""

from holdfast.data import records

__all__ = ["records"]
