"""Rules that turn ONNX operators into ours: one small rule each, which gives the reason where it cannot."""
