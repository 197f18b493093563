"""From operations to the graph: device layout, access maps, stages."""
