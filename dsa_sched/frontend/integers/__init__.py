"""What is computed of integers alone, before the network: words in memory, rules of operators on them, lookups."""
