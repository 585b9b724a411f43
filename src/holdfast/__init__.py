"""holdfast measures and raises the share of machine time, data and energy that turns into learning."""

__version__ = "0.2.0"
