"""What the integers of an input stand for: as the model file says it, or as what reads it shows."""
