"""Bireme: from a trained TensorFlow ranking model to a Triton ensemble."""

__version__ = "0.1.0"
