"""Embedding tables and vocabularies on their way from the model into files."""
