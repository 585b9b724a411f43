"""Pictures of machines."""
