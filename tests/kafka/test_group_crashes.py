"""An event that ends every process which works on it: found, and dead-lettered, alone."""

import itertools
import signal
import time
from pathlib import Path

import psycopg
import pytest
from commands import Commands
from kafka.conftest import await_effects, effects, uploaded

from offsetzero import Publisher
from offsetzero.retry import dead_letters
from offsetzero.settings import Settings
from support import IS_NIGHT, wait_until

KILLED = """
import os, signal, time
from offsetzero import ConsumerGroup, DocumentUploaded
killed = ConsumerGroup("killed", concurrency=100)

@killed.handler(DocumentUploaded)
def handle(event, ctx):
    with open("begun", "a") as begun:
        begun.write(event.name + chr(10))
    time.sleep(0.1)
    if event.name == "57":
        os.kill(os.getpid(), signal.SIGKILL)
    ctx.connection.execute(
        "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
        (event.document_id, event.name, ctx.attempt),
    )
"""


@pytest.mark.usefixtures("topics")
def test_of_a_hundred_events_in_work_the_one_that_kills_the_process_is_dead_lettered(
    settings: Settings, tmp_path: Path, database: psycopg.Connection
) -> None:
    """The first death shows nobody, the second all that were in work; these run one at a time from then on, and five
    deaths of one of them are enough."""
    with Publisher(settings) as publisher:
        for number in range(100):
            publisher.publish(uploaded(name=str(number)))
    (tmp_path / "mine.py").write_text(KILLED)
    commands, deaths = Commands(settings, tmp_path), 0
    begun = tmp_path / "begun"

    def is_dead() -> bool:
        row = database.execute("SELECT count(*) FROM processed_events WHERE outcome = 'dead-lettered'").fetchone()
        return row == (1,)

    while True:
        process = commands.start("groups", "run", "mine:killed")
        try:
            wait_until(lambda one=process: is_dead() or one.poll() is not None, 60, what="a death, or an end of them")
            if is_dead():
                await_effects(database, 99)
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
                break
        finally:
            process.kill()
            process.wait()
        assert process.returncode == -signal.SIGKILL
        deaths += 1
        assert begun.read_text().splitlines().count("57") == deaths
    assert deaths == 6
    [letter] = dead_letters.read(settings, "killed")
    assert (letter.failure, letter.reason) == ("crash-loop", "crash-loop")
    assert "died 5 times" in letter.detail
    done = effects(database)
    assert sorted(int(note) for _, note, _ in done) == [number for number in range(100) if number != 57]
    assert {attempt for _, _, attempt in done} == {1}
    assert database.execute("SELECT count(*) FROM crash_marks").fetchone() == (0,)

    process = commands.start("groups", "run", "mine:killed")  # left in good order: nothing is suspect any more
    try:
        with Publisher(settings) as publisher:
            publisher.publish(uploaded(name="last"))
        await_effects(database, 100, 60)
        process.send_signal(signal.SIGTERM)
        assert "did not leave in good order" not in (process.communicate(timeout=60)[1] or "")
    finally:
        process.kill()
        process.wait()


SLOW = """
import time
from offsetzero import ConsumerGroup, DocumentUploaded
slow = ConsumerGroup("slow", concurrency=32)

@slow.handler(DocumentUploaded)
def handle(event, ctx):
    begun = time.monotonic()
    time.sleep(0.05)
    ctx.connection.execute(
        "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
        (event.document_id, event.name, ctx.attempt),
    )
    with open("handled", "a") as handled:
        handled.write(f"{begun} {time.monotonic()}" + chr(10))
"""
BACKLOG = 5_000 if IS_NIGHT else 2_500
AT_ONCE = 32


def alone(handled: Path) -> int:
    """How many of the handlings that a file names began and ended while no other was going on."""
    spans = sorted(tuple(map(float, line.split())) for line in handled.read_text().splitlines())
    befores = [0.0, *itertools.accumulate((end for _, end in spans), max)]
    afters = [*(begun for begun, _ in spans[1:]), float("inf")]
    each = zip(spans, befores, afters, strict=False)
    return sum(before <= begun and end <= after for (begun, end), before, after in each)


@pytest.mark.usefixtures("topics")
def test_after_a_kill_at_most_what_was_in_work_runs_one_at_a_time_whatever_the_backlog(
    settings: Settings, tmp_path: Path, database: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second kill hits a member whose starts are marked: those that were open are looked at one by one."""
    with Publisher(settings) as publisher:
        for number in range(BACKLOG):
            publisher.publish(uploaded(name=str(number)))
    (tmp_path / "mine.py").write_text(SLOW)
    commands, handled = Commands(settings, tmp_path), tmp_path / "handled"
    for part in (500, 1_000):
        process = commands.start("groups", "run", "mine:slow")
        try:
            await_effects(database, part)
        finally:
            process.kill()
            process.wait()
    row = database.execute("SELECT count(*) FROM crash_marks").fetchone()
    assert row is not None
    assert 0 < row[0] <= AT_ONCE
    handled.unlink()
    begun, process = time.monotonic(), commands.start("groups", "run", "mine:slow")
    try:
        await_effects(database, BACKLOG)
        seconds = time.monotonic() - begun
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    by_itself = alone(handled)
    with capsys.disabled():
        print(f"\n{row[0]} marks were open; {by_itself} of {BACKLOG - 1_000:,} ran alone; {seconds:.1f} s")
    assert row[0] <= by_itself <= AT_ONCE + 5  # and the last ones, which have no others beside them
    assert sorted(int(note) for _, note, _ in effects(database)) == list(range(BACKLOG))
    assert database.execute("SELECT count(*) FROM crash_marks").fetchone() == (0,)
