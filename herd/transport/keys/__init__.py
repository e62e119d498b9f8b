"""Who may connect: keys (CURVE) or the token of the run."""
