"""The NeuralScale NPU v1 of the STCP920 card: instruction set, kernels, machine code and a bit-exact simulator."""
