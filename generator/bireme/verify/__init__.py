"""Served scores against the original model."""
