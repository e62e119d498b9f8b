"""Found in place of matplotlib by runs whose pictures no test looks at (`tests.system.whole_runs.UNDRAWN`)."""

raise ModuleNotFoundError("hidden from this run", name="matplotlib")
