"""Measures one machine: each stage of a run alone, the whole system, and a learner at its limit."""
