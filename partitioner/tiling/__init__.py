"""How work is divided: pieces for cores, boxes on each core, rounds through the staging memory, tiles."""
