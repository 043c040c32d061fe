"""The part of `offsetzero rebuild` that comes before its members: what only the archive has of the log."""

from collections.abc import Callable

from offsetzero.cli import side_jobs
from offsetzero.cli.rebuild_run import Rebuild
from offsetzero.consumers.rebuilding import archived
from offsetzero.consumers.replaying.job import Progress, SideJob
from offsetzero.consumers.replaying.looking import Wanted
from offsetzero.consumers.replaying.spans import Span
from offsetzero.generation import Generation
from offsetzero.settings import Settings


def read(config: Settings, one: Rebuild, generation: Generation, say: Callable[[str], None]) -> None:
    """Have a generation, which has no members yet, read what its log has no more. Begun again, it does the rest.

    What fails goes to the retry topics of the generation, for its members. Of what they have to do nothing is lost when
    this is interrupted, for no position is written before its end.

    Raises:
        KeyboardInterrupt: it was interrupted.
        HistoryError: the archive is not what its manifests say.
    """
    while spans := archived.find(config, one.connection, generation, one.topics):
        side_jobs.begin_logs(config, f"rebuild-{generation.name}")

        def make(tell: Callable[[Progress], None], found: list[Span] = spans) -> SideJob:
            return SideJob(one.group, config, found, Wanted(), tell, generation=generation.number)

        total = sum(span.records for span in spans)
        job, _ = side_jobs.run(f"{generation.name} archive", total, make)
        if not job.is_complete:
            raise KeyboardInterrupt
        archived.have_read(one.connection, generation, spans)
        say(f"{total:,} offsets of the archive are read: {side_jobs.outcomes(job)}.")
