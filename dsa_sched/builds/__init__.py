"""What is shipped: one artifact per model, chip and options, with its figures, made once and found again."""
