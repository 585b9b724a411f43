"""Training data: described, stored, fed and chosen.

from holdfast.data import croissant, records
"""

from holdfast.data import croissant, records

__all__ = ["croissant", "records"]
