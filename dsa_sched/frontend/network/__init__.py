"""A model as plain data: nodes, constants, shapes; folding, cutting, and the list of refusals."""
