"""The program: instructions of each core with the regions they touch; what a target must lower; timed forms."""
