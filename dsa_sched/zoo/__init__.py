"""Networks by name: the topologies that the onnx wheel ships, with seeded and calibrated weights."""
