"""Measurements of one part at a time, without a server."""
