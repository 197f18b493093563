"""What is scheduled above the kernel: tasks of a network, devices, prices, and the problem they make."""
