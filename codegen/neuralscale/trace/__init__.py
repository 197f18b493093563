"""What a program or its machine code does in time: recorded and decoded operations for the cycle model."""
