"""Training data: described, stored, fed and chosen.

from holdfast.data import croissant, curation, pipeline, records
"""

from holdfast.data import croissant, curation, pipeline, records

__all__ = ["croissant", "curation", "pipeline", "records"]
