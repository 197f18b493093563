"""ONNX file -> checked, simplified -> Graph with access maps."""
