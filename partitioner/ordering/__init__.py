"""Orders of sub-graph instances and where values wait: heuristics, and a beam search in windows of an order."""
