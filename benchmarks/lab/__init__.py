"""The laboratory: what tests and benchmarks compare the product with, and no command needs.

exact_schedule/   the best order of small programs, by CP-SAT
readers/          text forms that no command reads back
ios/              networks, a GPU model and measured stages of the IOS paper
placement_searches.py and the other files: baselines and exact answers, one a file

The packages of the product do not import it, and it does not import tests (`tests/repo/test_reachability.py`).
"""
