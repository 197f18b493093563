"""The chip's arithmetic as pure functions, exact to the bit: halves, single precision, matrix and vector engine."""
