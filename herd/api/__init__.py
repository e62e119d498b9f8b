"""What scripts and notebooks use; ``import herd`` offers it under shorter names."""
