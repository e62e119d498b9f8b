"""One folder a suite. Each is found by its entry point in the group ``herd.suites``, as those of other packages are."""
