"""Checks that a compiled network computes what its ONNX file says: references, tolerances, judgement by layer."""
