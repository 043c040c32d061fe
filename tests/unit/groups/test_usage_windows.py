"""What the group `usage` counts, and what it does with what it is given twice."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.api.routes.usage import added_up
from offsetzero.consumers.groups.usage import windows
from offsetzero.consumers.groups.usage.credentials import credentials
from offsetzero.consumers.groups.usage.windows import Cell, Fact, Key
from offsetzero.errors import ConfigurationError
from offsetzero.schemas.ids import uuid7
from offsetzero.schemas.runs import RunSucceeded


def test_a_run_took_from_the_time_in_its_id_to_its_end() -> None:
    run_id = uuid7()
    accepted = datetime.fromtimestamp((run_id.int >> 80) / 1000, UTC)
    ended = RunSucceeded(
        run_id=run_id, tenant_id="acme", document_id=uuid7(), finished_at=accepted + timedelta(seconds=4.25)
    )
    assert windows.fact_of(ended) == Fact(
        "acme", ended.finished_at.timestamp(), {"succeeded": 1, "timed": 1, "seconds": 4.25}
    )
    other = ended.model_copy(update={"run_id": uuid4()})
    fact = windows.fact_of(other)
    assert fact is not None
    assert fact.counts == {"succeeded": 1}


@given(st.lists(st.tuples(st.sampled_from(["documents", "runs"]), st.integers(1, 5)), max_size=60), st.data())
def test_a_window_holds_each_event_once_wherever_reading_begins_again(
    log: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Offsets have gaps (compaction, transaction markers); after a crash, reading begins again at an earlier record."""
    last = {"documents": -1, "runs": -1}
    records = []
    for topic, gap in log:
        last[topic] += gap
        records.append((topic, last[topic]))
    cell: Cell | None = None
    fact = Fact("acme", 0.0, {"uploaded": 1, "seconds": 1.5})
    for end in [*sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=3))), len(records)]:
        begin = data.draw(st.integers(0, data.draw(st.integers(0, end)))) if cell else 0
        begin = min(begin, cell["uploaded"] if cell else 0)  # never behind what was counted
        for topic, offset in records[begin:end]:
            cell = windows.added(cell, fact, topic, offset) or cell
    assert (cell["uploaded"] if cell else 0) == len(records)
    assert (cell["seconds"] if cell else 0) == 1.5 * len(records)


def test_recent_is_the_whole_windows_of_five_minutes() -> None:
    cells = [(Key(number % 2, "acme", start), {"uploaded": 1}) for number, start in enumerate(range(0, 1200, 60))]
    assert windows.recent(cells, 1199.0, 60)["acme"]["uploaded"] == 5
    assert windows.recent(cells, 1199.0, 600)["acme"]["uploaded"] == 10
    assert not windows.recent(cells, 5000.0, 60)


def test_windows_are_kept_for_their_time_and_clocks_far_ahead_are_not_believed() -> None:
    assert windows.is_kept(0, 3659.9, 3600, 60)
    assert not windows.is_kept(0, 3660.0, 3600, 60)
    assert windows.is_kept(3600, 0, 3600, 60)
    assert not windows.is_kept(3660, 0, 3600, 60)


def test_answers_of_several_members_add_up_and_a_partition_that_moves_counts_once() -> None:
    def answer(*partitions: int) -> dict[str, object]:
        told = [{"start": 60, "partition": number, "uploaded": 1, "seconds": 2, "timed": 1} for number in partitions]
        return {
            "window_seconds": 60,
            "keep_seconds": 3600,
            "partition_count": 3,
            "partitions": list(partitions),
            "windows": told,
        }

    both = added_up([answer(0, 1), answer(1, 2)])
    assert (both.complete, both.total.uploaded, both.total.mean_seconds) == (True, 3, 2)
    assert both.total.uploaded_per_minute == 0.05
    assert [(one.start.timestamp(), one.uploaded, one.uploaded_per_minute) for one in both.windows] == [(60, 3, 3)]
    assert not added_up([answer(0, 1)]).complete


def test_options_of_librdkafka_become_credentials_or_one_error_that_names_them_all() -> None:
    assert credentials({"socket.keepalive.enable": "true"}) is None
    found = credentials(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "usage",
            "sasl.password": "secret",
        }
    )
    assert (found.protocol.value, found.mechanism.value, found.username) == ("SASL_SSL", "SCRAM-SHA-512", "usage")
    assert found.ssl_context is not None
    assert credentials({"security.protocol": "ssl"}).context is not None
    with pytest.raises(ConfigurationError) as caught:
        credentials({"security.protocol": "sasl_ssl", "ssl.cipher.suites": "x", "sasl.mechanism": "OAUTHBEARER"})
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigurationError, match="certificates cannot be read"):
        credentials({"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"})
