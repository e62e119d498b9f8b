"""The conversations with the parameter server: weights, and the places of actors."""
