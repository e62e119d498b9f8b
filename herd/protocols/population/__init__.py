"""Population."""
