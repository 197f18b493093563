"""Many compilations: a file of networks, chips and options, carried out point by point, as one table."""
