"""What a group of layers needs of every value when it is cut: bytes, overlaps, peaks, in closed form."""
