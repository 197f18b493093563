"""Graphs and plans: which operators form one kernel, how it is split, in which order it runs, where outputs live."""
