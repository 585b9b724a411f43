"""The description itself: JSON with places, terms, and the model that every other step reads."""
