"""The logs that the contract is tried on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract.clients import PUT_OUT_MS, ClientLog, MockLog
from contract.simulated import SimLog

from offsetzero.settings import Settings

LOGS = [f"{log}-{protocol}" for log in ("simulated", "mock", "kafka") for protocol in ("classic", "consumer")]
CLASSIC = {"session.timeout.ms": str(PUT_OUT_MS), "heartbeat.interval.ms": "200"}


@pytest.fixture(
    params=[
        "simulated-classic",
        "simulated-consumer",
        "mock-classic",
        "mock-consumer",
        "kafka-classic",
        "kafka-consumer",
    ]
)
def log(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> Iterator[SimLog | ClientLog]:
    """An empty log."""
    broker, protocol = request.param.split("-")
    if broker == "simulated":
        yield SimLog(seed=len(request.node.name), classic=protocol == "classic")
        return
    kafka = {
        "bootstrap_servers": "",
        "namespace": namespace,
        "group_protocol": protocol,
        "options": {"max.poll.interval.ms": str(PUT_OUT_MS), **(CLASSIC if protocol == "classic" else {})},
    }
    made: ClientLog
    if broker == "mock":
        made = MockLog(Settings(home=tmp_path, kafka=kafka))
    else:
        kafka["bootstrap_servers"] = request.getfixturevalue("kafka_bootstrap")
        made = ClientLog(Settings(home=tmp_path, kafka=kafka))
    yield made
    made.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test runs where its log lets it wait for members."""
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    log = arguments.get("log")
    if log is None:
        return None
    test: Callable[..., None] = pyfuncitem.obj
    log.play(lambda: test(**arguments))
    return True
