"""The public Python interface: what the command line does, as functions and objects. `dsa_sched` names all of it."""
