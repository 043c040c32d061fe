"""Work done at once, in threads."""

import queue
import threading
from collections.abc import Callable


def all_of(*tasks: Callable[[], None]) -> None:
    """Run tasks at once, each in a thread, to the end of all or the first failure, which is raised.

    The threads are daemons: after a failure or Ctrl-C the main thread stops what they wait for.
    """
    results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            results.put(error)
        else:
            results.put(None)

    for task in tasks:
        threading.Thread(target=run, args=(task,), daemon=True).start()
    for _ in tasks:
        problem = results.get()
        if problem is not None:
            raise problem
