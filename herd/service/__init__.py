"""The shared parts of all services: start and end, signals, allocator, metrics, context, serving from a socket, atomic files.

The exit codes below are those of all processes and of ``herd``, besides 0 (done) and 1 (anything else).
"""

EXIT_BAD_INPUT = 2
"""Settings, files or addresses cannot work, so a restart does not help; one line on stderr says why."""
EXIT_LOST = 74
"""The process ended cleanly, but could not write its last files (EX_IOERR)."""
EXIT_SHARD_LOST = 75
"""Another learner shard was lost, so this one can continue only in a new group (EX_TEMPFAIL)."""
