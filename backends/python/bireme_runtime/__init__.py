"""What runs inside Triton: feature transforms, embedding lookup, batching. Needs numpy only.

Vendored by the generator beside every emitted `model.py`; never imports `bireme` or TensorFlow.
"""
