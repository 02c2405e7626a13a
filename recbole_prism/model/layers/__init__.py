"""Plain `nn.Module`: tensors in and out, nothing of Config or Interaction."""
