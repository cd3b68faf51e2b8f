"""The embedded tritonserver: found, started, awaited, stopped."""
