"""ONNX operators as ours: one small rule for each, which says why where it cannot."""
