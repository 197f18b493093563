"""The check of a plan, whoever made it."""
