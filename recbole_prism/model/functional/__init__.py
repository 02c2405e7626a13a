"""Pure tensor functions without parameters."""
