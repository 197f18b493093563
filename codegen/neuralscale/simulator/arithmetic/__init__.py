"""The chip's arithmetic as pure functions, exact to the bit: fp16, single precision, matrix and vector engine."""
