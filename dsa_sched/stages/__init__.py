"""The stages after the frontend, one function each; the values that they make; and the choice of the target."""
