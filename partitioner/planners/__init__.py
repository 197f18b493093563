"""The levels: functions from graph, chip and target to a plan, in one registry."""
