"""What each class of failure comes to in a group on the real broker and database: outcome, step, dead letter."""

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
from kafka.conftest import await_dead_letters, uploaded

from offsetzero import Cancelled, DeadLetter, Discard, Permanent, Retry, Throttled, Transient
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.log import LogProducer
from offsetzero.producers.publisher import Publisher
from offsetzero.retry import dead_letters
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store import runs
from offsetzero.store.script import run
from offsetzero.topics import lag
from offsetzero.topics.names import Names
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[Any]]
TIERS = (Tier("retry-1s", 1.0), Tier("retry-2s", 2.0))


class SdkError(Exception):
    pass


RAISED: dict[str, BaseException] = {
    "transient": ConnectionResetError(),
    "asked": Retry("warming-up", after=0.5),
    "throttled": Throttled("throttled", retry_after=0.5),
    "permanent": Permanent("password-needed"),
    "poison": DeadLetter("looks-odd", "a person should look"),
    "bug": KeyError("x"),
    "bug-later": ConnectionResetError(),  # and then the bug
    "cancelled": Cancelled(),
    "discarded": Discard("not ours"),
    "ruled": SdkError("quota"),
}


def outcomes(database: psycopg.Connection) -> dict[str, str]:
    return dict(database.execute("SELECT event_id, outcome FROM processed_events").fetchall())


def test_each_class_has_its_attempts_its_outcome_and_its_step(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit", step=True, tiers=TIERS, rules={SdkError: lambda error: Permanent("quota")})
    attempts: dict[str, list[int]] = {name: [] for name in (*RAISED, "good")}

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        attempts[event.name].append(ctx.attempt)
        if event.name == "bug-later" and ctx.attempt > 1:
            raise KeyError("x")
        if event.name in RAISED:
            raise RAISED[event.name]

    made: dict[str, UUID] = {}
    with Publisher(settings) as publisher:
        for name in attempts:
            made[name], document_id = uuid4(), uuid4()
            run(database, runs.create(made[name], "acme", document_id, ["audit"]))
            publisher.publish(uploaded(document_id, made[name], name), event_id=name)
    with running(audit):
        wait_until(lambda: len(outcomes(database)) == len(attempts), what="all events have their outcome")
        wait_until(lambda: all(one.lag == 0 for one in lag.group_offsets(settings, "audit")), what="lag 0")
    last = ["transient", "asked", "throttled", "bug-later"]
    assert {name: made for name, made in attempts.items() if made != [1]} == {
        "bug": [1, 2],
        **{name: [1, 2, 3] for name in last},
    }
    dead = dict.fromkeys([*last, "poison", "bug"], "dead-lettered")
    assert outcomes(database) == dead | {
        "good": "applied",
        "permanent": "failed",
        "ruled": "failed",
        "cancelled": "cancelled",
        "discarded": "discarded",
    }
    letters = {letter.meta.id: letter for letter in dead_letters.read(settings, "audit") if letter.meta}
    assert set(letters) == set(dead)
    assert {name: letters[name].failure for name in dead} == {
        "transient": "transient",
        "asked": "transient",
        "throttled": "throttled",
        "poison": "poison",
        "bug": "bug",
        "bug-later": "bug",
    }
    steps = {
        name: database.execute(
            "SELECT r.status, s.status, s.reason, s.warning FROM runs r JOIN run_steps s ON s.run_id = r.id"
            " WHERE r.id = %s",
            (run_id,),
        ).fetchone()
        for name, run_id in made.items()
    }
    assert steps == {
        "good": ("succeeded", "succeeded", None, None),
        "discarded": ("succeeded", "succeeded", None, "discarded: not ours"),
        "cancelled": ("cancelled", "cancelled", "cancelled", None),
        "permanent": ("failed", "failed", "password-needed", None),
        "ruled": ("failed", "failed", "quota", None),
        "transient": ("failed", "failed", "connection", None),
        "asked": ("failed", "failed", "warming-up", None),
        "throttled": ("failed", "failed", "throttled", None),
        "poison": ("failed", "failed", "looks-odd", None),
        "bug": ("failed", "failed", "KeyError", None),
        "bug-later": ("failed", "failed", "KeyError", None),
    }
    ended = database.execute("SELECT type, count(*) FROM outbox GROUP BY type").fetchall()
    assert dict(ended) == {"run.succeeded": 2, "run.cancelled": 1, "run.failed": 8}


def test_attempts_in_the_process_come_before_the_tiers(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit", tiers=TIERS[:1], attempts=3)
    attempts: dict[str, list[int]] = {"passing": [], "lasting": [], "bug": []}

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        attempts[event.name].append(ctx.attempt)
        if event.name == "bug":
            raise KeyError("x")
        if event.name == "lasting" or len(attempts["passing"]) < 3:
            raise Transient("busy")

    with Publisher(settings) as publisher:
        for name in attempts:
            publisher.publish(uploaded(name=name), event_id=name)
    with running(audit):
        await_dead_letters(settings, "audit", 2)
        wait_until(lambda: len(outcomes(database)) == 3, what="all events have their outcome")
    assert attempts == {"passing": [1, 1, 1], "lasting": [1, 1, 1, 2, 2, 2], "bug": [1, 2]}
    assert outcomes(database)["passing"] == "applied"


def test_a_discard_of_an_operator_ends_the_record_without_its_handler(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """As a retry record carries it, whatever topic brings it."""
    audit = ConsumerGroup("audit", tiers=TIERS)
    calls: Counter[str] = Counter()

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        calls[event.name] += 1
        raise DeadLetter("looks-odd")

    with Publisher(settings) as publisher:
        publisher.publish(uploaded(name="bad"), event_id="bad")
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1)
        hop = retry_headers.redriven(letter.hop, uuid4(), discard=True)
        with LogProducer(settings) as producer:
            producer.produce(
                Names(settings.kafka.namespace).topic("audit.retry-1s"),
                key=letter.key,
                value=letter.value,
                headers=retry_headers.write(letter.headers, hop, None, "audit"),
                partition=hop.origin.partition,
            ).result(10)
        found = wait_until(
            lambda: database.execute("SELECT event_id, outcome FROM processed_events WHERE redrive_no = 1").fetchall(),
            what="the outcome of the discard",
        )
    assert found == [("bad", "discarded")]
    assert calls == {"bad": 1}
    assert len(list(dead_letters.read(settings, "audit"))) == 1
