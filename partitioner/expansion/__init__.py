"""How a layout becomes transfers, computation and barriers, in the order in which a program does them."""
