"""An agent as a member of a population: its state and the orders that it carries out."""
