"""Descriptions for people: completeness of responsible-AI statements, and the card."""
