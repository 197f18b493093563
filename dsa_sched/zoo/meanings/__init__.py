"""Meanings of integer inputs: as the model file declares them, or as their readers show them."""
