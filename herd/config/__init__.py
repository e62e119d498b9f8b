"""Typed settings, where they are loaded from, and the part of them that processes must agree on."""
