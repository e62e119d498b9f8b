"""From queued and replayed unrolls to the batches that are trained on."""
