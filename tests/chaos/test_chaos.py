"""Whatever is killed, every event has one effect, those of a key in their order, and nothing is retried for it."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import plan as plans
from chaos.crew import Crew, Member
from chaos.load import Load
from chaos.plan import FULL, SIZE, What
from chaos.stand import Stand
from chaos.subjects import EFFECTS, GROUP, KINDS

from offsetzero.topics import lag
from support import passes, wait_until

MEMBERS = 3
SERVERS = {What.BROKER: 1, What.DATABASE: 1}
SMALLER = {"killed": {What.MEMBER: SIZE.kills, **SERVERS}}
FULLY = {
    "all": {What.MEMBER: SIZE.kills, What.FROZEN: 1, **SERVERS},
    "members": {What.MEMBER: SIZE.kills},
    "frozen": {What.MEMBER: 1, What.FROZEN: 10},
    "broker": {What.MEMBER: 1, What.BROKER: 4},
    "database": {What.MEMBER: 1, What.DATABASE: 4},
}
KILLS = FULLY if SIZE is FULL else SMALLER


@pytest.fixture
def dice(seed: int) -> random.Random:
    """For what is not in the plan: kinds of members, victims."""
    return random.Random(f"{seed} dice")


@pytest.fixture
def stand(seed: int, folder: Path) -> Iterator[Stand]:
    """Servers; the seed chooses by which protocol the members of the group work."""
    protocol = random.Random(f"{seed} protocol").choice(["consumer", "consumer", "classic"])
    print(f"protocol {protocol}")
    with Stand(folder, protocol) as started:
        yield started


@pytest.fixture
def crew(stand: Stand, dice: random.Random, tmp_path: Path) -> Iterator[Crew]:
    """Members of the group."""
    with stand.connect() as database:
        database.execute(EFFECTS)
    started = Crew(stand.settings, dice, tmp_path)
    try:
        for kind in dice.sample(KINDS, MEMBERS):
            started.start(kind)
        yield started
    finally:
        started.kill()
        print(started.troubles())  # shown when the test fails


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kills", KILLS.values(), ids=KILLS)
def test_what_is_killed_loses_doubles_and_turns_round_nothing(
    kills: dict[What, int], seed: int, stand: Stand, crew: Crew, dice: random.Random
) -> None:
    with Load(plan := plans.make(seed, SIZE, kills), stand) as load:
        for step in plan.steps:
            if step.what is not What.MEMBER:
                settled(stand, crew)
            load.publish(step.published)
            load.await_effects(step.handled)
            if step.what is What.MEMBER:
                crew.replace(victim(crew, load, dice))
            elif step.what is What.FROZEN:
                (frozen := victim(crew, load, dice)).freeze()
                passes(step.seconds)
                frozen.thaw()
            else:
                stand.kill(step.what)
                passes(step.seconds)
                stand.start(step.what)
        end(load, crew)


@pytest.mark.timeout(600)
def test_a_database_that_is_away_costs_no_attempt_no_record_and_no_membership(
    seed: int, stand: Stand, crew: Crew
) -> None:
    with Load(plan := plans.make(seed, SIZE, {}), stand) as load:
        joined, third = settled(stand, crew), len(plan.events) // 3
        said = crew.said()
        load.publish(third)
        load.await_effects(third // 2)
        stand.kill(What.DATABASE)
        until, published = time.monotonic() + SIZE.outage, third
        while time.monotonic() < until:
            load.publish(published := min(2 * third, published + third // 10))
            crew.check()
            assert members(stand) == joined
            passes(0.3)
        stand.start(What.DATABASE)
        load.publish_rest()
        load.await_all(crew.check)
        assert members(stand) == joined
        assert crew.said() == said
        end(load, crew)


def victim(crew: Crew, load: Load, dice: random.Random) -> Member:
    """One that has had effects; now and then any, which may just be starting."""
    crew.check()
    at_work = load.handled_by()
    return dice.choice([one for one in crew.members if one.pid in at_work or dice.random() < 0.2] or crew.members)


def members(stand: Stand) -> list[lag.Member]:
    """The group's members with their partitions, as the coordinator knows them."""
    return sorted(lag.group_state(stand.settings, GROUP).members, key=lambda one: one.id)


def settled(stand: Stand, crew: Crew) -> list[lag.Member]:
    """The members, once all partitions are shared out among those that are alive, and each has heard of it."""
    before: object = None

    def shared_out() -> list[lag.Member]:
        nonlocal before
        crew.check()
        last, before = before, (members(stand), crew.said())
        found, said = before
        parts = [len(one.assignment) for one in found]
        if len(found) == MEMBERS and min(parts) == max(parts) and all(said) and before == last:
            return found
        return []

    return wait_until(shared_out, 60, what="partitions of every member", interval=0.5)


def end(load: Load, crew: Crew) -> None:
    """All is published, handled and committed; nothing is wrong, and the members stop in order."""
    load.publish_rest()
    load.await_all(crew.check)
    assert load.verdict() == []
    assert crew.stop() == [0] * MEMBERS
    assert load.behind() == []
