"""A whole run in a simulated world: the decisions of the product, with a simulated network, disk and time.

One seed is one history. `world` has time, processes and faults, `wire` the network, `disk` the files; `servers`, `learners` and `actors` put
the product's objects into processes; `invariants` says what must hold; `defects` are planted to show that the world finds them.
"""
