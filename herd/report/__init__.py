"""A run as one HTML page that stands by itself."""
