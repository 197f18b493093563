"""A schedule: its simulation, its bounds, its decoding from an order, and running it on devices."""
