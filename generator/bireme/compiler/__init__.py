"""From a SavedModel to a feature plan, embedding tables and a dense ONNX."""
