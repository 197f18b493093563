"""The stages after the frontend, one function each, what they make, and which target makes it."""
