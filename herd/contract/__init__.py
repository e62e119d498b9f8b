"""What the processes of a run must agree on: spaces, and the fields of an unroll. Without torch."""
