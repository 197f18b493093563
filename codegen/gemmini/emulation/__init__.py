"""The same arithmetic in plain numpy, for samples of a verification."""
