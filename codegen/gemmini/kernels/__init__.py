"""Tiles of layers: what they need, and the instructions that compute them."""
