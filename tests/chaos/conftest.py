"""A seed for each test, and a folder for servers that it may kill. `make chaos` takes the full sizes."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.plan import FULL, SIZE

SEED = "OZ_CHAOS_SEED"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Another one each time, unless OZ_CHAOS_SEED says which; shown when the test fails."""
    chosen = int(os.environ.get(SEED) or secrets.randbelow(1_000_000))
    command = "make chaos" if SIZE is FULL else "make test"
    print(f"seed {chosen}; again with: {SEED}={chosen} {command} ARGS='-k {request.node.name.partition('[')[0]}'")
    return chosen


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the servers' data; PostgreSQL's account reaches it."""
    made = Path(tempfile.mkdtemp(prefix="oz-chaos-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)
