"""A compilation from file to artifact: the stages, in order."""
