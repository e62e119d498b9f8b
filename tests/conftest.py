"""For every test: no property test may fail because the machine is slow."""

from hypothesis import settings

settings.register_profile("herd", deadline=None)
settings.load_profile("herd")
