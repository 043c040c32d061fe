"""The garbage collector of a process that has much at work at once."""

import gc


def spare() -> None:
    """Have it look less often, and not at what is there for good; to be called when all is set up.

    Thousands of records in flight are live objects which it would go through again and again: with Python's own
    thresholds that took a third of the time of a handler that does little, and an eighth of a rebuild's with 10,000.
    What comes and goes with the batches, or with requests, stays below this one.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
