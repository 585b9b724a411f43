"""The ranks that slow everybody down."""
