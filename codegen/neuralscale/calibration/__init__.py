"""Micro-benchmarks of the NeuralScale target: small programs by whose cycles the numbers of a chip file are fitted."""
