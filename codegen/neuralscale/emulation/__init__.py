"""The chip's arithmetic in numpy, layer by layer: the reference that the simulator must equal bit for bit."""
