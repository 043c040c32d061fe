"""How much of the processors a child gets when others want them, too."""

import contextlib
import os
import time
from pathlib import Path

_TRIES = 20
_PAUSE_SECONDS = 0.11  # Linux lets a user change one session in a tenth of a second


def lower(pid: int, nice: int) -> None:
    """Have a child of a session of its own give way; not when it has ended, nor where nobody can.

    On Linux the processes of a session are a group, each of which gets the same, however nice a process in it is
    (sched(7), "The autogroup feature"): the group has to be told, too. It is not there in a control group for
    processors, as containers and services of systemd often have.

    Args:
        pid: of the child.
        nice: how much nicer than this process; a step takes a fifth of its time when others want it.
    """
    if hasattr(os, "setpriority"):
        for thread in _threads(pid):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, 0) + nice))
    group = Path(f"/proc/{pid}/autogroup")
    for _ in range(_TRIES):
        try:
            group.write_text(str(nice))
        except BlockingIOError:  # another was changed just now
            time.sleep(_PAUSE_SECONDS)
        except OSError:
            return
        else:
            return


def _threads(pid: int) -> list[int]:
    """On Linux each thread has a niceness of its own, and gives it to those that it makes."""
    try:
        return [int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return [pid]
