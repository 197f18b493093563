"""Rewrites of networks that keep what they compute, and the order in which they are done."""
