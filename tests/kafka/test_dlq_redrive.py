"""`offsetzero dlq redrive`, `discard` and `audit`: what is sent, to whom, and what is kept of it."""

import json
import re
import secrets
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from commands import CommandsHere
from kafka import letters
from kafka.conftest import uploaded
from kafka.letters import Letter
from kafka.test_ledger import delete_topic

from offsetzero.cli import dlq_actions
from offsetzero.clock import SYSTEM
from offsetzero.generation import Generation
from offsetzero.retry.dead_letters import LetterReader
from offsetzero.retry.failures import Bug, Transient
from offsetzero.settings import Settings
from offsetzero.store import dead_letter_actions as actions
from offsetzero.store import generations, processed, run_steps, runs
from offsetzero.store.dead_letters import Place
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import run
from offsetzero.topics import cluster
from offsetzero.topics.plan import AlterConfig, ConfigChange, Plan
from support import wait_until


@pytest.fixture
def offsetzero(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch)


@pytest.fixture
def database(settings: Settings) -> Iterator[psycopg.Connection]:
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        yield connection


def statuses(offsetzero: CommandsHere, group: str) -> dict[str, str]:
    listed = json.loads(offsetzero("dlq", "list", group, "--status", "all", "--json").stdout)
    return {row["place"]: row["status"] for row in listed}


def test_a_redrive_reaches_only_the_group_that_failed(settings: Settings, offsetzero: CommandsHere) -> None:
    """azure-webjobs-sdk#2751, azure-service-bus#445: a redrive reached every subscriber of the topic."""
    letters.write(settings, "audit", [Letter(5), Letter(3, partition=1)])
    letters.write(settings, "billing", [Letter(5)])
    before = cluster.partitions(settings)
    counted = offsetzero("dlq", "redrive", "audit", "--all", "--dry-run").stdout
    assert counted == "2 dead letters of audit would be redriven.\n"
    assert letters.redriven(settings, "audit") == []
    said = offsetzero("dlq", "redrive", "audit", "--all", "--why", "reader mended", "--who", "ada").stdout
    assert said.startswith("2 dead letters sent to audit.")
    assert letters.origins(letters.redriven(settings, "audit")) == [(0, 5), (1, 3)]
    assert letters.redriven(settings, "billing") == []
    assert cluster.partitions(settings) == before
    assert statuses(offsetzero, "audit") == {"0/0": "redriven", "1/0": "redriven"}
    assert statuses(offsetzero, "billing") == {"0/0": "open"}
    (action,) = json.loads(offsetzero("dlq", "audit", "--json").stdout)
    assert {name: action[name] for name in ("action", "group", "who", "why", "letters", "done", "ended", "chosen")} == {
        "action": "redrive",
        "group": "audit",
        "who": "ada",
        "why": "reader mended",
        "letters": 2,
        "done": 2,
        "ended": "done",
        "chosen": "--all",
    }


def test_attempts_and_deadlines_start_anew_and_the_lineage_stays(settings: Settings, offsetzero: CommandsHere) -> None:
    """gbrain#2974: a redriven job died at once, for its attempts were used up."""
    event_id = uuid4()
    letters.write(settings, "audit", [Letter(5, event_id=event_id, attempt=3, redrive_no=1)])
    offsetzero("dlq", "redrive", "audit", str(event_id), "--why", "again")
    (sent,) = letters.redriven(settings, "audit")
    (action,) = json.loads(offsetzero("dlq", "audit", "--json").stdout)
    carried = {name: value for name, value in sent.items() if name.startswith("oz_")}
    assert carried == {
        "oz_group": "audit",
        "oz_origin": f"{letters.SOURCE_ID}/0/5",
        "oz_topic": "documents",
        "oz_timestamp": "1700000000000",
        "oz_attempt": "1",
        "oz_hop": "4",
        "oz_due": "0",
        "oz_redrive_no": "2",
        "oz_redrive": action["id"],
    }
    assert sent["ce_id"] == str(event_id)
    assert abs(sent["timestamp_ms"] - SYSTEM.now_ms()) < 60_000


def test_letters_of_a_key_are_sent_in_the_order_of_their_origins(settings: Settings, offsetzero: CommandsHere) -> None:
    one, other = uuid4(), uuid4()
    failed = [Letter(offset, document_id=one if offset % 2 else other) for offset in (9, 4, 7, 2, 5, 8, 1)]
    letters.write(settings, "audit", [*failed, Letter(3, partition=1)])
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "again")
    assert letters.origins(letters.redriven(settings, "audit")) == [
        *((0, offset) for offset in (1, 2, 4, 5, 7, 8, 9)),
        (1, 3),
    ]


def test_filters_choose_what_goes(settings: Settings, offsetzero: CommandsHere) -> None:
    old = SYSTEM.now_ms() - 3 * 3_600_000
    letters.write(
        settings,
        "audit",
        [
            Letter(0, tenant="acme", name="Invoice März.pdf", failed_at_ms=old),
            Letter(1, tenant="beta", failure=Bug("KeyError", "no such key")),
            Letter(2, tenant="acme", failure=Transient("busy", "too busy")),
        ],
    )
    (bug,) = (row for row in json.loads(offsetzero("dlq", "list", "--json").stdout) if row["failure"] == "bug")
    for options, places in (
        (["--tenant", "acme"], {"0/0", "0/2"}),
        (["--tenant", "acme", "--since", "1h"], {"0/2"}),
        (["--until", "2h"], {"0/0"}),
        (["--fingerprint", bug["fingerprint"][:6]], {"0/1"}),
        (["--text", "invoice märz"], {"0/0"}),
        (["--type", "document.uploaded", "--tenant", "nobody"], set()),
    ):
        listed = json.loads(offsetzero("dlq", "list", "audit", *options, "--json").stdout)
        assert {row["place"] for row in listed} == places, options
        counted = offsetzero("dlq", "redrive", "audit", *options, "--dry-run").stdout
        assert counted.startswith(f"{len(places)} dead letter"), options
    offsetzero("dlq", "redrive", "audit", "--text", "MÄRZ", "--why", "again")
    assert statuses(offsetzero, "audit") == {"0/0": "redriven", "0/1": "open", "0/2": "open"}
    (action,) = json.loads(offsetzero("dlq", "audit", "audit", "--json").stdout)
    assert action["chosen"] == "--text MÄRZ"


def test_bad_input_is_told_and_sends_nothing(settings: Settings, offsetzero: CommandsHere) -> None:
    letters.write(settings, "audit", [Letter(0), Letter(1)])
    offsetzero("dlq", "redrive", "audit", "0/0", "--why", "again", "--who", "ada")
    for arguments, said in (
        (["nogroup", "--all", "--why", "x"], "there is no group nogroup"),
        (["audit", "0/0", "--why", "x"], "audit 0/0 is redriven already, by ada"),
        (["audit", "0/1", "0/0", "--why", "x"], "audit 0/0 is redriven already, by ada"),
        (["audit", "0/7", "--why", "x"], "no dead letter 0/7"),
        (["audit", "--all", "--why", "x", "--rate", "0"], "--rate 0: it must be more than 0"),
        (["audit", "--all", "--why", "x", "--rate", "-5"], "--rate -5: it must be more than 0"),
        (["audit", "--all", "--why", "x", "--rate", "nan"], "--rate nan"),
        (["audit", "--all", "--why", "x", "--rate", "inf"], "--rate inf"),
        (["audit", "--all", "--why", "x", "--since", "yesterday"], "--since yesterday: give a time"),
        (["audit", "--all", "--why", "x", "--until", "2026-01-31T12:00:00"], "give a time with its zone"),
        (["audit", "--all", "--why", "x", "--canary", "0"], "--canary 0: it must be 1 or more"),
        (["audit", "--all", "--why", "x", "--canary", "1"], "writes no outcomes into this database"),
        (["audit", "--all", "--why", "x", "--stop-above", "many"], "--stop-above many: give a share"),
        (["audit", "--all", "--why", "x", "--stop-above", "5%"], "say how many with --canary"),
        (["audit", "--all", "--why", "x", "--canary-seconds", "5"], "say how many with --canary"),
        (["audit", "--fingerprint", "", "--why", "x"], "--fingerprint is empty"),
        (["audit", "--text", "", "--why", "x"], "--text is empty"),
        (["audit", "0", "--why", "x"], "no dead letter 0; name a place, such as 0/17, or an event id"),
        (["audit", "--all"], "--why: say the reason"),
        (["audit", "--why", "x"], "which dead letters?"),
        (["audit", "--resume", "that one"], "--resume that one"),
        (["audit", "--resume", str(UUID(int=1))], "there is no redrive"),
        (["audit", "--resume", str(UUID(int=1)), "--dry-run"], "--resume: it sends what is left of a redrive"),
        (["audit", "--resume", str(UUID(int=1)), "0/1"], "--resume: it sends what is left of a redrive"),
        (["audit", "--resume", str(UUID(int=1)), "--tenant", "acme"], "--resume: it sends what is left of a redrive"),
    ):
        assert said in offsetzero("dlq", "redrive", *arguments, status=1).stderr, arguments
    assert len(letters.redriven(settings, "audit")) == 1
    assert len(json.loads(offsetzero("dlq", "audit", "--json").stdout)) == 1


def test_what_a_redrive_was_begun_for_is_sent_after_a_kill(settings: Settings, offsetzero: CommandsHere) -> None:
    """CrossBusExplorer#64: stopping a resend lost every message, for they were removed before they were sent."""
    letters.write(settings, "audit", [Letter(offset, partition=offset % 2) for offset in range(1_000)])
    process = offsetzero.in_process_of_its_own.start(
        "dlq", "redrive", "audit", "--all", "--why", "again", "--rate", "40"
    )
    try:
        wait_until(lambda: letters.count_redriven(settings, "audit") > 40, what="some are sent")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    sent = len(letters.redriven(settings, "audit"))
    assert sent < 900
    said = offsetzero("dlq", "redrive", "audit", "--all", "--why", "impatient")
    assert "nothing was done" in said.stdout  # it is taken
    (resume,) = re.findall(r"--resume (\S+)", said.stderr)
    letters.write(settings, "audit", [Letter(2_000)])
    counted = offsetzero("dlq", "redrive", "audit", "--all", "--dry-run")
    assert "1 dead letter of audit would be redriven" in counted.stdout
    assert re.search(rf"A redrive of .* has taken \d+ more and has not ended.* --resume {resume}", counted.stderr)
    done = offsetzero("dlq", "redrive", "audit", "--resume", resume, "--rate", "5000")
    assert "has not ended" not in done.stderr
    found = letters.redriven(settings, "audit")
    assert set(letters.origins(found)) == {(offset % 2, offset) for offset in range(1_000)}
    assert len(found) <= 1_000 + 10  # what was under way, a quarter of a second's, may be there twice, under one number
    assert {one["oz_redrive_no"] for one in found} == {"1"}
    assert Counter(statuses(offsetzero, "audit").values()) == {"redriven": 1_000, "open": 1}
    assert "has ended: done" in offsetzero("dlq", "redrive", "audit", "--resume", resume, status=1).stderr


def test_what_goes_on_later_is_judged_by_the_canaries_that_were_sent_and_is_of_its_group_alone(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection
) -> None:
    """What was held back because of its canaries must not follow because of a kill, a Ctrl-C, or new canaries."""
    for group in ("audit", "billing"):
        letters.write(settings, group, [Letter(offset) for offset in range(20)])
    with database.transaction():  # it writes outcomes, but does not run
        run(database, processed.claim(EventIdentity("audit", "/test", str(uuid4())), Outcome.APPLIED))
    canaries = ("--canary", "5", "--stop-above", "20%", "--canary-seconds", "100")
    process = offsetzero.in_process_of_its_own.start(
        "dlq", "redrive", "audit", "--all", "--why", "again", "--rate", "50", *canaries
    )
    await_line(process, "Canaries: 5 sent, none has ended")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    said = offsetzero("dlq", "redrive", "audit", "--all", "--why", "impatient").stderr
    found = re.search(r"--resume (\S+) --rate 50 --canary 5 --stop-above 0.2 --canary-seconds 100$", said, re.MULTILINE)
    assert found is not None, said
    process = offsetzero.in_process_of_its_own.start("dlq", "redrive", "audit", *found[0].split())
    await_line(process, "Canaries: 5 sent, none has ended")
    assert letters.count_redriven(settings, "audit") == 5, "the same five"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert re.search(rf"--resume {found[1]} --rate 50 --canary 5 --stop-above 0.2 --canary-seconds 100$", said, re.M), (
        said
    )
    refused = offsetzero("dlq", "redrive", "billing", "--resume", found[1], status=1).stderr
    assert "there is no redrive" in refused
    refused = offsetzero("dlq", "redrive", "audit", "--resume", found[1], "--dry-run", status=1).stderr
    assert "--resume: it sends" in refused
    with database.transaction():
        for sent in letters.redriven(settings, "audit"):
            identity = EventIdentity("audit", "/test", sent["ce_id"], redrive_no=1)
            run(database, processed.claim(identity, Outcome.DEAD_LETTERED))
    resume = ("dlq", "redrive", "audit", "--resume", found[1], "--canary", "7", "--stop-above", "20%")
    said = offsetzero(*resume, status=1).stderr
    assert "2 dead letters sent to audit. Stopped: of 7 canaries: 5 dead-lettered; more than 20% failed" in said
    assert "13 were not sent, and are open" in said
    assert letters.count_redriven(settings, "audit") == 7, "what was missing of the canaries, and not the rest"


def await_line(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stderr is not None
    told = iter(process.stderr.readline, "")
    assert any(text in line for line in told), "it ended without saying so"


def test_ctrl_c_ends_a_redrive_that_goes_on_later(settings: Settings, offsetzero: CommandsHere) -> None:
    letters.write(settings, "audit", [Letter(offset) for offset in range(2_000)])
    process = offsetzero.in_process_of_its_own.start(
        "dlq", "redrive", "audit", "--all", "--why", "again", "--rate", "100"
    )
    wait_until(lambda: letters.count_redriven(settings, "audit") > 20, what="some are sent")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    (resume,) = re.findall(r"it goes on with: offsetzero dlq redrive audit --resume (\S+)", said)
    sent = len(letters.redriven(settings, "audit"))
    assert list(statuses(offsetzero, "audit").values()).count("redriven") == sent
    offsetzero("dlq", "redrive", "audit", "--resume", resume, "--rate", "5000")
    assert len(letters.redriven(settings, "audit")) == 2_000


def test_what_the_broker_refuses_holds_up_no_other_and_stays_open(settings: Settings, offsetzero: CommandsHere) -> None:
    letters.write(settings, "audit", [Letter(0), Letter(1, name=secrets.token_hex(20_000)), Letter(2)])
    _configure(settings, "audit.redrive", "20000")
    said = offsetzero("dlq", "redrive", "audit", "--all", "--why", "again").stdout
    assert "2 dead letters sent to audit, 1 were refused and stay open" in said
    assert statuses(offsetzero, "audit") == {"0/0": "redriven", "0/1": "open", "0/2": "redriven"}
    _configure(settings, "audit.redrive", "1000000")
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "there is room now")
    assert sorted(letters.origins(letters.redriven(settings, "audit"))) == [(0, 0), (0, 1), (0, 2)]


def _configure(settings: Settings, topic: str, max_bytes: str) -> None:
    cluster.apply(settings, Plan((AlterConfig(topic, (ConfigChange("max.message.bytes", None, max_bytes),)),)))


def test_the_rate_is_kept(settings: Settings, offsetzero: CommandsHere) -> None:
    letters.write(settings, "audit", [Letter(offset, partition=offset % 2) for offset in range(2_000)])
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "again", "--rate", "500")
    times = sorted(one["timestamp_ms"] for one in letters.redriven(settings, "audit"))
    assert len(times) == 2_000
    assert 2_000 / (times[-1] - times[0]) * 1_000 == pytest.approx(500, rel=0.05)


def test_runs_are_in_work_again(settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection) -> None:
    """Terminal states change in one way only: failed to queued, by an audited redrive (design section 8)."""
    made = {name: uuid4() for name in ("mine", "cancelled", "of another step", "untouched")}
    for run_id in made.values():
        run(database, runs.create(run_id, "acme", uuid4(), ["audit", "other"]))
        for step in ("audit", "other"):
            run(database, run_steps.start_step(run_id, step, 2))
    for name, run_id in made.items():
        if name != "of another step":
            run(database, run_steps.fail_step(run_id, "audit", reason="corrupt", detail="it cannot be read"))
        run(
            database,
            run_steps.fail_step(run_id, "other", reason="corrupt", detail="")
            if name == "of another step"
            else run_steps.succeed_step(run_id, "other"),
        )
    run(database, run_steps.succeed_step(made["of another step"], "audit"))
    database.execute("UPDATE runs SET status = 'cancelled' WHERE id = %s", (made["cancelled"],))
    sent = [Letter(number, run_id=run_id) for number, (name, run_id) in enumerate(made.items()) if name != "untouched"]
    letters.write(settings, "audit", sent)
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "again")
    found = {
        run_id: (status, finished)
        for run_id, status, finished in database.execute("SELECT id, status, finished_at FROM runs")
    }
    assert found[made["mine"]] == ("queued", None)
    assert [found[made[name]][0] for name in ("cancelled", "of another step", "untouched")] == [
        "cancelled",
        "failed",
        "failed",
    ]
    steps = database.execute(
        "SELECT step, status, attempts, reason FROM run_steps WHERE run_id = %s ORDER BY step", (made["mine"],)
    ).fetchall()
    assert steps == [("audit", "queued", 0, None), ("other", "succeeded", 2, None)]


def test_runs_are_in_work_again_where_the_generation_is_read(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection
) -> None:
    """A step has the name of the group, whichever generation ends it; one that is not read ends none."""
    for generation in (Generation("audit"), Generation("audit", 2)):
        run(database, generations.add(generation))
    of = {name: uuid4() for name in ("audit", "audit.g2")}
    for name, run_id in of.items():
        run(database, runs.create(run_id, "acme", uuid4(), ["audit"]))
        run(database, run_steps.fail_step(run_id, "audit", reason="corrupt", detail="it cannot be read"))
        letters.write(settings, name, [Letter(0, run_id=run_id)])
    database.execute("UPDATE group_pointers SET generation = 2 WHERE group_name = 'audit'")
    for name in of:
        offsetzero("dlq", "redrive", name, "--all", "--why", "again")
    found = dict(database.execute("SELECT id, status FROM runs").fetchall())
    assert {name: found[run_id] for name, run_id in of.items()} == {"audit": "failed", "audit.g2": "queued"}


def test_a_letter_whose_mark_was_lost_is_not_sent_once_its_event_has_ended(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection
) -> None:
    run_id, event_id = uuid4(), uuid4()
    run(database, runs.create(run_id, "acme", uuid4(), ["audit"]))
    run(database, run_steps.fail_step(run_id, "audit", reason="corrupt", detail=""))
    letters.write(settings, "audit", [Letter(0, run_id=run_id, event_id=event_id)])
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "again")
    database.execute("UPDATE dead_letter_actions SET ended = NULL")
    database.execute("UPDATE dead_letter_decisions SET done_at = NULL")
    run(database, run_steps.start_step(run_id, "audit", 1))
    run(database, run_steps.fail_step(run_id, "audit", reason="corrupt", detail="as before"))
    database.execute("INSERT INTO processed_events VALUES ('audit', 1, '/test', %s, 1, 'failed')", (str(event_id),))
    (action,) = json.loads(offsetzero("dlq", "audit", "--json").stdout)
    said = offsetzero("dlq", "redrive", "audit", "--resume", action["id"]).stdout
    assert "1 had been sent or handled, and have ended" in said
    assert len(letters.redriven(settings, "audit")) == 1
    assert database.execute("SELECT status FROM runs").fetchall() == [("failed",)]


def test_a_letter_of_an_event_that_was_handled_after_all_is_not_sent(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection
) -> None:
    """The process died between the append of the letter and its outcome; the next one handled the event."""
    ids = [uuid4() for _ in range(2)]
    letters.write(settings, "audit", [Letter(offset, event_id=event_id) for offset, event_id in enumerate(ids)])
    for event_id, outcome in zip(ids, ("applied", "dead-lettered"), strict=True):
        database.execute(
            "INSERT INTO processed_events VALUES ('audit', 1, '/test', %s, 0, %s)", (str(event_id), outcome)
        )
    said = offsetzero("dlq", "redrive", "audit", "--all", "--why", "again").stdout
    assert "1 had been sent or handled, and have ended" in said
    assert letters.origins(letters.redriven(settings, "audit")) == [(0, 1)]
    assert statuses(offsetzero, "audit") == {"0/0": "resolved", "0/1": "redriven"}


def test_a_discarded_letter_is_never_sent(settings: Settings, offsetzero: CommandsHere) -> None:
    letters.write(settings, "audit", [Letter(0), Letter(1), Letter(2)])
    assert "would be discarded" in offsetzero("dlq", "discard", "audit", "--all", "--dry-run").stdout
    offsetzero("dlq", "discard", "audit", "0/1", "--why", "a test upload", "--who", "ada")
    assert "audit 0/1 is discarded already, by ada" in (
        offsetzero("dlq", "redrive", "audit", "0/1", "--why", "x", status=1).stderr
    )
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "again")
    assert letters.origins(letters.redriven(settings, "audit")) == [(0, 0), (0, 2)]
    assert statuses(offsetzero, "audit") == {"0/0": "redriven", "0/1": "discarded", "0/2": "redriven"}


def test_a_dry_run_counts_a_page_at_a_time(
    settings: Settings, offsetzero: CommandsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million dead letters not even the places are in memory at once."""
    monkeypatch.setattr(dlq_actions, "AT_ONCE", 2)
    meant = [Letter(offset, partition) for offset in range(3) for partition in range(2)]
    letters.write(settings, "audit", [Letter(0, pointer=True), *meant])
    counted = offsetzero("dlq", "redrive", "audit", "--all", "--dry-run")
    assert counted.stdout == "6 dead letters of audit would be redriven.\n"
    assert counted.stderr.startswith("1 would stay open")


def test_statuses_follow_from_the_topics_and_the_audit_alone(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection
) -> None:
    ids = [uuid4() for _ in range(4)]
    letters.write(settings, "audit", [Letter(offset, event_id=event_id) for offset, event_id in enumerate(ids)])
    offsetzero("dlq", "redrive", "audit", "0/0", "0/1", "--why", "again")
    offsetzero("dlq", "discard", "audit", "0/2", "--why", "no use")
    database.execute("INSERT INTO processed_events VALUES ('audit', 1, '/test', %s, 1, 'applied')", (str(ids[0]),))
    wanted = {"0/0": "resolved", "0/1": "redriven", "0/2": "discarded", "0/3": "open"}
    assert statuses(offsetzero, "audit") == wanted
    database.execute("TRUNCATE dead_letters, dead_letter_positions")
    assert statuses(offsetzero, "audit") == wanted
    shown = json.loads(offsetzero("dlq", "show", "audit", str(ids[0]), "--json").stdout)
    assert [(one["status"], one["redriven"]) for one in shown["history"]] == [("resolved", 0)]


def test_a_pointer_to_what_is_gone_is_sent_only_when_somebody_has_said_what_it_is(
    settings: Settings, offsetzero: CommandsHere, tmp_path: Path
) -> None:
    lost = Letter(0, pointer=True)
    letters.write(settings, "audit", [lost, Letter(1)])
    counted = offsetzero("dlq", "redrive", "audit", "--all", "--dry-run")
    assert counted.stdout == "1 dead letter of audit would be redriven.\n"
    assert counted.stderr.startswith("1 would stay open")
    said = offsetzero("dlq", "redrive", "audit", "--all", "--why", "again").stdout
    assert "1 dead letter sent to audit, 1 are not in the log any more and stay open" in said
    assert letters.origins(letters.redriven(settings, "audit")) == [(0, 1)]
    assert statuses(offsetzero, "audit") == {"0/0": "open", "0/1": "redriven"}
    shown = json.loads(offsetzero("dlq", "show", "audit", "0/0", "--json").stdout)
    assert "its source has it no more" in shown["payload_unreadable"]
    file = tmp_path / "payload.json"
    file.write_text(uploaded(lost.document_id, None, "again.pdf").model_dump_json())
    offsetzero("dlq", "edit", "audit", "0/0", "--file", str(file), "--why", "from its sender")
    counted = offsetzero("dlq", "redrive", "audit", "0/0", "--dry-run")
    assert (counted.stdout, counted.stderr) == ("1 dead letter of audit would be redriven.\n", "")
    offsetzero("dlq", "redrive", "audit", "0/0", "--why", "mended")
    sent = letters.redriven(settings, "audit")[-1]
    assert sent["oz_origin"] == f"{letters.SOURCE_ID}/0/0"
    assert "oz_pointer" not in sent
    assert statuses(offsetzero, "audit") == {"0/0": "redriven", "0/1": "redriven"}


def test_a_pointer_without_its_key_cannot_be_sent_whatever_its_payload(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection, tmp_path: Path
) -> None:
    """Without the key the event would come to another lane, and its handler to another entity."""
    lost = Letter(0, pointer=True, key=b"k" * 5_000)
    letters.write(settings, "audit", [lost])
    file = tmp_path / "payload.json"
    file.write_text(uploaded(lost.document_id, None, "again.pdf").model_dump_json())
    edit = ("dlq", "edit", "audit", "0/0", "--file", str(file), "--why", "from its sender")
    assert "its key (5,000 bytes) was too large" in offsetzero(*edit, status=1).stderr
    with database.transaction():  # one that was stored by an older version
        (place,) = database.execute("SELECT topic_id, partition, place FROM dead_letters").fetchall()
        run(database, actions.begin(action := uuid4(), actions.Kind.EDIT, "audit", "ada", "before", "0/0"))
        run(database, actions.edit(action, Place(*place), b"", b"{}"))
        run(database, actions.end(action))
    assert offsetzero("dlq", "redrive", "audit", "--all", "--dry-run").stdout.startswith("0 dead letters")
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "again")
    assert letters.redriven(settings, "audit") == []
    assert statuses(offsetzero, "audit") == {"0/0": "open"}


def test_what_another_topic_of_the_same_name_has_at_the_place_is_not_sent(
    settings: Settings, offsetzero: CommandsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead-letter topic is deleted and made again after a redrive has looked at it, before it reads the records."""
    letters.write(settings, "audit", [Letter(0)], partitions=1)
    original, made_again = LetterReader.fetch, list[bool]()

    def fetch(self: LetterReader, group: str, places: Any) -> Any:
        if not made_again:
            made_again.append(True)
            delete_topic(settings, "audit.dlq")
            wait_until(lambda: "audit.dlq" not in cluster.partitions(settings), what="the topic is gone")
            letters.write(settings, "audit", [Letter(7)], partitions=1)
        return original(self, group, places)

    monkeypatch.setattr(LetterReader, "fetch", fetch)
    said = offsetzero("dlq", "redrive", "audit", "--all", "--why", "again").stdout
    assert made_again
    assert "0 dead letters sent to audit, 1 are not in the log any more and stay open" in said
    assert letters.redriven(settings, "audit") == []


def test_what_is_not_in_the_log_any_more_is_known_and_not_sent(settings: Settings, offsetzero: CommandsHere) -> None:
    letters.write(settings, "audit", [Letter(0), Letter(1)], partitions=1)
    assert set(statuses(offsetzero, "audit").values()) == {"open"}
    delete_topic(settings, "audit.dlq")
    wait_until(lambda: "audit.dlq" not in cluster.partitions(settings), what="the topic is gone")
    assert len(statuses(offsetzero, "audit")) == 2
    letters.write(settings, "audit", [Letter(7)], partitions=1)
    listed = json.loads(offsetzero("dlq", "list", "audit", "--json").stdout)
    assert len(listed) == 3
    assert "1 dead letter of audit would be" in offsetzero("dlq", "redrive", "audit", "--all", "--dry-run").stdout
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "again")
    assert letters.origins(letters.redriven(settings, "audit")) == [(0, 7)]
    shown = json.loads(offsetzero("dlq", "show", "audit", listed[0]["event_id"], "--json").stdout)
    assert "does not have the record any more" in shown["payload_unreadable"]
