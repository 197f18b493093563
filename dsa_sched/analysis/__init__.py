"""Answers to questions about a compiled network: the decisions, the costs, the supported operators."""
