"""Answers to questions about a compiled network: what was decided, what it costs, which operators are supported."""
