"""What a program is: instructions of each core with the regions they touch; what a target must lower; timed forms."""
