"""Models: pure functions, layers as plain `nn.Module`, recommenders in RecBole's contract."""
