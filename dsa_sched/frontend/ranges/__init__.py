"""Values kept within the range of fp16: what a file writes in a form that leaves it, in one that does not."""
