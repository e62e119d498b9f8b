"""The ``herd`` command. Heavy packages are imported only after the command line has been parsed."""
