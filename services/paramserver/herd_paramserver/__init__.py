"""Parameter server: the newest complete weights for every actor, and indices for actors that have none."""
