"""Files written whole or not at all, arrays in and out, the user's cache folder."""
