"""Several sizes of one network in one artifact: a program for each combination of sizes, weights once for all."""
