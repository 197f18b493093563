"""Files written whole or not at all, arrays in and out, times that were taken before."""
