"""Side jobs in a terminal: a bar, and an end by Ctrl-C that loses nothing."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from offsetzero.consumers.replaying.job import Progress, SideJob
    from offsetzero.settings import Settings

    J = TypeVar("J", bound=SideJob)


def begin_logs(config: "Settings", process: str) -> None:
    """Have logs begin; without what members say of each event, which nobody wants among the lines of a command.

    Args:
        config: of this process; a level that somebody has named counts.
        process: its name in the log.
    """
    from offsetzero import logs

    level = config.log_level if "log_level" in config.model_fields_set else "WARNING"
    logs.configure(process=process, form=config.log_format, level=level)


def run(title: str, total: int, make: "Callable[[Callable[[Progress], None]], J]") -> "tuple[J, list[Any]]":
    """Run a job to its end, or until Ctrl-C or SIGTERM.

    Args:
        title: before the bar.
        total: records that it reads.
        make: makes the job, which is to call what it is given with its progress.

    Returns:
        The job, and the records whose handlers did not end in time.
    """
    from offsetzero.cli import bars
    from offsetzero.cli.signals import stopped_by_signals

    with bars.bar(title, total) as tell, stopped_by_signals() as stop:

        def progress(now: "Progress") -> None:
            tell(now.done)
            if stop.is_set():
                job.stop()

        job = make(progress)
        return job, job.run()


def outcomes(job: "SideJob") -> str:
    """How the events of a job have ended, in numbers."""
    return ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(job.outcomes.items())) or "nothing"
