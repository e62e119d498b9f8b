"""How many actors one learner and one tree of parameter servers can serve: thousands of simulated ones against the real processes."""
