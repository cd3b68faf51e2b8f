"""From a compiled model to a Triton model repository."""
