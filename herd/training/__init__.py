"""From a batch of unrolls to a gradient, and from a gradient to new parameters. No sockets, no clocks."""
