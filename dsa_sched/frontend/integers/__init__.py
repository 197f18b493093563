"""Integer computations before the network: words in memory, rules of operators on them, lookups."""
