"""Typed settings, their sources, and the part of them that processes must agree on."""
