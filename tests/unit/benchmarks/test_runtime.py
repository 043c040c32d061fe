"""The benchmark's own checks: a contestant that loses, doubles or reorders events must not get away with it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[3] / "benchmarks" / "runtime"


@pytest.fixture(autouse=True)
def _benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its modules, for one test: they stand on no path otherwise."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(RUNTIME))
    monkeypatch.syspath_prepend(str(RUNTIME / "contestants"))
    yield
    for name in set(sys.modules) - before:
        if str(RUNTIME) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_events_are_what_the_codec_writes_and_carry_their_numbers() -> None:
    import topic
    from terms import KEYS, decode

    from offsetzero.schemas import cloudevents
    from offsetzero.schemas.codec import Codec
    from offsetzero.schemas.documents import DocumentUploaded

    events, codec, ids = topic.Events(), Codec(), set()
    for number in (0, 1, 63, 64, 8_191, 8_192, 123_456_789):
        key, value, headers = events.record(number)
        event = codec.decode("document.uploaded", value)
        assert isinstance(event, DocumentUploaded)
        assert codec.encode(event) == value
        assert event.size_bytes == number == decode(value)["size_bytes"]
        assert key == event.key == events.record(number % KEYS)[0]
        message = cloudevents.read(value, headers)
        assert (message.meta.type, message.content_type) == ("document.uploaded", "application/avro")
        ids.add(message.meta.id)
        assert 250 <= len(value) <= 350
    assert len(ids) == 7


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        (range(4), None),
        ([0, 1, 2, 2], "1 events handled twice"),
        ([0, 1, 2], "3 of 4 events handled"),
        ([1_001, 1, 2, 3], "1 inversions"),
        ([0, 1, 2, 9_999], "never published"),
    ],
)
def test_what_was_handled_wrong_is_told(numbers: list[int], problem: str | None) -> None:
    from terms import Meter, problems

    meter = Meter(4)
    for number in numbers:
        meter.one(number)
    found = problems(meter, of=2_000, ordered=True)
    assert (problem in found[0]) if problem else found == []


def test_batches_and_unread_events_are_counted_to_the_end() -> None:
    from terms import Meter, problems

    for handle in (lambda meter: meter.ticks(2), lambda meter: [meter.tick(), meter.tick()]):
        ended: list[int] = []
        meter = Meter(4, lambda ended=ended: ended.append(1))
        for _ in range(3):
            handle(meter)
        assert ended == [1]
        assert problems(meter, of=4, ordered=True) == ["6 events handled, 4 published"]


def test_overlaps_and_inversions_of_a_key_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from spans import Spans

    spans = Spans(3, 0.1)
    first, second = spans.begin(), spans.begin()
    spans.end(1_000, first)
    spans.end(0, second)
    spans.end(1, spans.begin())
    spans.report()
    line = json.loads(capsys.readouterr().out)
    assert (line["inversions"], line["overlaps"], line["problems"]) == (1, 1, [])


def test_stacks_are_told_apart_by_stage() -> None:
    from rows.cost import _stages

    turn = "<module> (ours_noop.py:1);run (ours.py:9);PollLoop.turn (consumers/reading/poll.py:9)"
    work = "Thread.run (threading.py:1);ThreadWorkers._run (consumers/working/workers.py:1)"
    raw = "\n".join(
        [
            f"{turn};PollLoop._fetch (consumers/reading/poll.py:1) 1",
            f"{turn};PollLoop._accept (consumers/reading/poll.py:1);Record.__init__ (consumers/record.py:1) 2",
            f"{turn};PollLoop._accept (consumers/reading/poll.py:1);KeyLanes.add (consumers/working/lanes.py:1) 4",
            f"{work};CallReader.read (consumers/working/calls.py:1) 8",
            f"{work};one (ours_noop.py:3);get.<locals>.look (offsetzero/schemas/lazy.py:1) 16",
            f"{work};one (ours_noop.py:3) 32",
            "<module> (ours_noop.py:1);_find_and_load (importlib:1) 64",
        ]
    )
    assert _stages(raw) == {"fetch": 1, "record": 2, "dispatch": 4, "decode": 8, "model": 16, "effect": 32}


def test_the_fold_of_the_documents_is_that_of_their_records() -> None:
    import documents
    from terms import decode

    from offsetzero.schemas import cloudevents
    from offsetzero.schemas.codec import Codec
    from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded

    made, codec, count = documents.Documents(), Codec(), 2_003
    seen: set[str] = set()
    state: dict[str, tuple[bool, int, int]] = {}
    for number in range(count):
        key, value, headers = made.record(number)
        meta = cloudevents.read(value, headers).meta
        event = codec.decode(meta.type, value)
        assert (meta.subject, event.key) == (key, key)
        assert isinstance(event, DocumentDeleted) or decode(value)["size_bytes"] == event.size_bytes
        if meta.id not in seen:
            seen.add(meta.id)
            size = event.size_bytes if isinstance(event, DocumentUploaded) else 0
            now = isinstance(event, DocumentDeleted), meta.sequence or 0, size
            state[event.key] = max(now, state.get(event.key, (False, 0, 0)))
    deleted = sum(one[0] for one in state.values())
    assert documents.fold(count) == (len(seen), len(state), deleted, sum(one[2] for one in state.values()))
    assert len(seen) < count
    assert deleted > 90


def test_when_so_many_events_were_read_is_between_two_looks() -> None:
    from rows.growth import pace, when

    reached = [(0, 10.0), (100, 11.0), (100, 11.5), (300, 13.0)]
    assert when(reached, 50) == 0.5
    assert when(reached, 200) == 2.25
    assert when(reached, 301) is None
    assert pace(reached, 100, 300) == pytest.approx(2.0 / 200)


@pytest.mark.parametrize(("later", "linear", "mib", "flat"), [(40, "yes", 208, "yes"), (50, "NO", 215, "NO")])
def test_a_long_fill_is_judged_by_the_cpu_time_of_its_halves_and_by_its_memory(
    later: int, linear: str, mib: int, flat: str
) -> None:
    from rows import growth

    looks = range(0, 1_001, 50)  # of 1,000 events: µs an event until the middle behind the first tenth, and after it
    held = [
        [done, mib if done >= 900 else 200, min(done, 550) * 40e-6 + max(0, done - 550) * later * 1e-6]
        for done in looks
    ]
    result = {
        "count": 1_000,
        "seconds": 10.0,
        "cpu_seconds": held[-1][2] + 1.0,  # of the indexes, which are made behind the last event
        "server_seconds": 0.0,
        "index_seconds": 0.5,
        "reached": [[done / 100, done] for done in looks],
        "held": held,
        "problems": [],
    }
    shown = growth.show(growth.found(result, 1_000))
    assert f"Linear: {linear}." in shown
    assert f"takes {later / 40:.2f} times the CPU time" in shown
    assert f"Flat: {flat}." in shown
    assert "; 0.5 s more for the indexes" in shown
    assert "at 1.00 times its pace" in shown


def test_a_long_fill_that_was_ended_says_how_far_it_came() -> None:
    from rows import growth

    held = [[100, 200, 0.004], [200, 200, 0.008]]
    said = "ended after 10 s with 200 of 1,000 events"
    result = {"count": 200, "seconds": 10.0, "reached": [[0.0, 0], [10.0, 200]], "held": held, "problems": [said]}
    shown = growth.show(growth.found(result, 1_000))
    assert said in shown
    assert "Linear: not measured." in shown
