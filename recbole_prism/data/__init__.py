"""Raw file -> atomic file -> dataset -> batches."""
