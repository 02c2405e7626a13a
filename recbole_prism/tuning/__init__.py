"""Search for settings: Ray Tune runs trials, each an ordinary training without its test."""
