"""A whole run in a simulated world: the decisions of the product, with a simulated network, disk and time.

One seed is one history. `world` has time and processes, `wire` the network, `disk` the files, `faults` what goes wrong. `servers`,
`learners` and `actors` put the product's objects into processes. `invariants` says what must hold, and `defects` are planted to show that
the world finds them.
"""
