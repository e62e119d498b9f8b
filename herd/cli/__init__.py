"""The ``herd`` command. Nothing heavy is imported before the command line has been understood."""
