"""Whether a compiled network computes what its ONNX file says: references, tolerances, judgement layer by layer."""
