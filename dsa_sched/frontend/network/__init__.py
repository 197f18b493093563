"""A model as plain data: nodes, constants, shapes; folded, cut, and what is refused of it."""
