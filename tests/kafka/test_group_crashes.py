"""An event that ends every process which works on it: found, and dead-lettered, alone."""

import signal
from pathlib import Path

import psycopg
import pytest
from commands import Commands
from kafka.conftest import await_effects, effects, uploaded

from offsetzero import Publisher
from offsetzero.retry import dead_letters
from offsetzero.settings import Settings
from support import wait_until

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
    """The first death shows nobody; after it, what was in work runs one at a time, and five deaths are enough."""
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
                assert process.wait(30) == 0
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
        await_effects(database, 100)
        process.send_signal(signal.SIGTERM)
        assert "did not leave in good order" not in (process.communicate(timeout=30)[1] or "")
    finally:
        process.kill()
        process.wait()
