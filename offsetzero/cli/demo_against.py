"""`offsetzero demo --against`: the demo's documents through a pipeline that runs already, as a tenant of its own."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from offsetzero.cli.demo_view import Runs, show
from offsetzero.cli.receiver import Receiver
from offsetzero.cli.scenario import GROUPS, Scenario
from offsetzero.errors import OffsetzeroError
from offsetzero.settings import Settings, load

_READY_SECONDS = 90.0


def run(api_url: str, folder: Path, receiver: Receiver, console: Console) -> bool:
    """Do the demo against a running pipeline, and take back what it put there: documents, webhook, key.

    The settings of this process must reach the pipeline's Kafka (for the dead letters) and database (for a key).

    Args:
        api_url: where the pipeline's API answers.
        folder: where the example documents are.
        receiver: the webhook receiver, not started.
        console: where to write.

    Returns:
        Whether everything happened that must.

    Raises:
        ConfigurationError: the settings name no Kafka or no database.
        OffsetzeroError: the pipeline is not complete in time, or answered something unexpected.
    """
    started = time.monotonic()
    settings = load(needs=frozenset({"kafka", "database"}))
    _await_ready(api_url, settings)
    ready = time.monotonic() - started
    console.print(f"The pipeline behind {api_url} is complete after {ready:.1f} s. Uploading three documents …\n")
    with _key(settings) as key, receiver:
        scenario = Scenario(api_url, key, folder, receiver, settings)
        try:
            with Runs(console, scenario.outcome) as runs:
                outcome = scenario.run(runs.changed, lambda: None)
        finally:
            scenario.take_back()
    good = show(console, outcome)
    console.print(f"Finished in {time.monotonic() - started:.1f} s; the pipeline goes on.")
    return good


@contextmanager
def _key(settings: Settings) -> Iterator[str]:
    """A key of a new tenant, revoked afterwards. Nothing that others uploaded is seen through it."""
    import psycopg

    from offsetzero.store import tenants
    from offsetzero.store.script import run as run_script

    url = settings.database_url.get_secret_value()
    with psycopg.connect(url) as connection:
        key = tenants.create_key(connection, f"demo-{secrets.token_hex(6)}")
    try:
        yield key
    finally:
        with psycopg.connect(url) as connection:
            run_script(connection, tenants.revoke_key(key))


def _await_ready(api_url: str, settings: Settings) -> None:
    """Wait until the API can work and every group has a member."""
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        missing = _missing(api_url, settings)
        if not missing:
            return
        if time.monotonic() > deadline:
            raise OffsetzeroError(f"not complete within {_READY_SECONDS:.0f} s: {'; '.join(missing)}")
        time.sleep(0.3)


def _missing(api_url: str, settings: Settings) -> list[str]:
    import httpx

    from offsetzero.topics import lag

    missing = []
    try:
        answer = httpx.get(f"{api_url.rstrip('/')}/readyz", timeout=5, trust_env=False)
        if answer.status_code != 200:
            missing.append(f"the API answers {answer.status_code}: {answer.text[:200]}")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        missing.append(f"the API at {api_url} does not answer ({error})")
    missing += [f"no member of {group}" for group in GROUPS if not lag.group_state(settings, group).members]
    return missing
