"""`python -m dsa_sched` is `dsa-sched`."""

from dsa_sched.cli import main

if __name__ == "__main__":
    main()
