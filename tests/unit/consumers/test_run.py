"""A run while its partitions are revoked by another thread."""

from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.run import Ending, Run


class RevokedMeanwhile(OwnedPartition):
    """Owned at the first look, and no more at the second: the polling thread came between."""

    looks = 0

    @property
    def active(self) -> bool:  # type: ignore[override]
        self.looks += 1
        return self.looks == 1

    @active.setter
    def active(self, value: bool) -> None:
        pass


def test_a_record_of_a_batch_is_begun_or_given_back_whenever_its_partition_is_revoked() -> None:
    """Found by the simulation: looked at twice, a record was neither, and held its place in flight for ever."""
    owned = RevokedMeanwhile("documents", "id", 0)
    records = [Record(owned, offset, b"k", b"v", [], 0) for offset in range(3)]
    run = Run(records, 0.0, whole=True)
    begun = run.begin_all()
    left = [record for record, ending in run.ended if ending is Ending.LEFT]
    assert [*begun, *left] == records
    assert run.running == begun
