"""One file per model, each a RecBole `SequentialRecommender`."""
