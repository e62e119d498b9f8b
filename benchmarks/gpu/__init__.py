"""What one machine with a GPU does, in one command: ``python -m benchmarks.gpu`` (``make gpu``)."""
