"""Which nodes of the dense network compute in FP16, and how that is decided and cast."""
