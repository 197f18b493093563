"""Input of scheduling above the kernel: tasks of a network, devices, prices, and the problem that they make."""
