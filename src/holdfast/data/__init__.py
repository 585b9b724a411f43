"""Training data: described, stored, fed and chosen.

from holdfast.data import croissant, curation, records
"""

from holdfast.data import croissant, curation, records

__all__ = ["croissant", "curation", "records"]
