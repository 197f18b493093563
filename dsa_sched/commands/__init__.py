"""The commands of `dsa-sched`, one subject a file. Heavy imports stand inside the functions, so that help is fast."""
