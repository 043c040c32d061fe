"""The chain of migrations is one line: two branches that took the same number are seen before a database is."""

from pathlib import Path

from alembic.script import ScriptDirectory

from offsetzero.store import migrate


def test_each_migration_follows_the_one_before() -> None:
    folder = Path(migrate.__file__).with_name("migrations")
    numbers = sorted(path.name[:4] for path in (folder / "versions").glob("[0-9]*.py"))
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
    assert ScriptDirectory(str(folder)).get_heads() == [numbers[-1]]
