"""Exit codes of all commands and services; ``herd train``, Kubernetes and scripts act on them. 0 is success, 1 any other failure."""

EXIT_BAD_INPUT = 2
"""Settings, files or addresses cannot work, so a restart does not help."""
EXIT_LOST = 74
"""The process ended cleanly, but could not write its last files (EX_IOERR)."""
EXIT_SHARD_LOST = 75
"""Another learner shard was lost, so this one can continue only in a new group (EX_TEMPFAIL). This is not its own failure."""
