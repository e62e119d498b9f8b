"""Central inference: rows of observations and the actions for them."""
