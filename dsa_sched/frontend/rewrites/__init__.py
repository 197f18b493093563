"""Rewrites of networks that keep what they compute, and their order."""
