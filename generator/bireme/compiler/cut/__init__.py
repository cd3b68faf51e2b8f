"""The embedding frontier: what runs on the CPU, in which engine, and what crosses to the dense network."""
