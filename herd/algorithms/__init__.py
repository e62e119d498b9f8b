"""The equations of the papers as pure functions of tensors: no I/O, no settings, no devices."""
