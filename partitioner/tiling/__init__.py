"""Division of work: pieces for cores, boxes on each core, rounds through the staging memory, tiles."""
