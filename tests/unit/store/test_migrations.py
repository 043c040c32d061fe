"""The chain of migrations is one line: two branches that took the same number are seen before a database is."""

import re
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from offsetzero.store import migrate

VERSIONS = Path(migrate.__file__).with_name("migrations") / "versions"
HOLDING = r"CREATE (?:UNIQUE )?INDEX \w+ ON (\w+)|ALTER TABLE (\w+)(?=.* CHECK \()(?!.* NOT VALID)"
"""A statement that reads the whole of a table with a lock on it for which writers wait."""


def test_each_migration_follows_the_one_before() -> None:
    numbers = sorted(path.name[:4] for path in VERSIONS.glob("[0-9]*.py"))
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
    assert ScriptDirectory(str(VERSIONS.parent)).get_heads() == [numbers[-1]]


AS_THEY_ARE = ("0002", "0016", "0019", "0023")
"""Of keys and generations, of which there are few; and two that write the index, or the outbox, anew."""


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(VERSIONS.glob("[0-9]*.py")) if path.name[:4] not in AS_THEY_ARE],
    ids=lambda p: p.stem,
)
def test_no_migration_reads_a_table_that_it_holds(path: Path) -> None:
    """While an index of all runs is made by one, no run begins, goes on, or ends."""
    said = path.read_text().partition("def downgrade")[0].partition("DOWNGRADE =")[0]
    made = set(re.findall(r"CREATE TABLE (\w+)", said))
    held = {one[1] or one[2] for part in said.split(";") if (one := re.search(HOLDING, part, re.DOTALL))}
    assert held <= made, (
        "make the index in `migrate.INDEXES`, have the check NOT VALID, and validate it in a migration of its own"
    )
