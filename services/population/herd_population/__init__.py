"""The population service: watches how the agents of a run fare, and decides who copies whom and whose settings change. Runs without torch."""
