"""The population service: watches the agents of a run, decides who copies whom and whose settings change. Runs without torch."""
