"""Rules that keep values within the range of fp16: forms of a file that leave it are replaced by forms that do not."""
