"""The replay service: complete episodes of all agents of a run, first-in-first-out, drawn uniformly."""
