"""Level auto: which planner, and how many items of a batch per pass, make the fastest program."""
