"""From a plan with its memory layout to instructions: rounds, copies, broadcasts, addresses in main memory."""
