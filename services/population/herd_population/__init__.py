"""The population service: decides which agents of a run copy others and which settings change. Runs without torch."""
