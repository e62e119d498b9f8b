"""Reports of learners to the population, and its orders."""
