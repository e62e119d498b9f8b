"""View."""
