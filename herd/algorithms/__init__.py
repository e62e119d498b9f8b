"""The papers' equations as pure functions on tensors: no I/O, no settings, no devices."""
