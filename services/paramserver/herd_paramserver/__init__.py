"""The parameter server: serves the newest complete weights to all actors, and assigns indices to actors without one."""
