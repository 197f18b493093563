"""The nouns of planning and their text forms: graph, access maps, boxes, layers, plan, decisions, target."""
