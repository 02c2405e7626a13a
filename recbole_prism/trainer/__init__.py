"""Training loop, early stopping."""
