"""The documentation site: what ``make docs-site`` adds to the pages of ``docs/``."""
