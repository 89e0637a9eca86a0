"""A fleet: independent tasks run somewhere, one a GPU, each counted once. Ray places them; it is imported only when a fleet is opened.

    with session.opened(place.parse("local")) as fleet:
        for outcome in running.run(fleet, tasks, stack.here()):
            print(outcome.task, outcome.status, outcome.where)

A task is a job (`base/process/jobs.py`) with its request. It runs in a child of Ray's worker, so that what TensorRT aborts is the child.

Work that goes on together, as the generators of one load, is held (`holding`): processes that answer calls until the block ends.
"""
