"""The shape of the package: which room may import which, and what a wheel brings into a service."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("producers", "consumers", "schemas", "topics", "retry")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package as it is committed, links included."""
    for name in (*ROOMS, "offsetzero"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([tool, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=60)


def test_the_arrows_hold(copy: Path) -> None:
    ended = lint_imports(copy)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("room", ["schemas", "topics", "producers", "retry"])
def test_an_arrow_that_points_up_is_found(room: str, copy: Path) -> None:
    (copy / room / "wrong.py").write_text("import offsetzero.consumers.group\n")
    ended = lint_imports(copy)
    assert ended.returncode != 0
    assert f"offsetzero.{room} is not allowed to import offsetzero.consumers" in ended.stdout


@pytest.mark.parametrize("room", ROOMS)
def test_the_rooms_are_links_into_the_package(room: str) -> None:
    assert (ROOT / "offsetzero" / room).readlink() == Path("..") / room


def test_a_wheel_has_one_top_level_name_and_the_contracts(copy: Path) -> None:
    """PyPI's `retry` would overwrite a top-level one, and many services have `schemas` of their own."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "out", "."],
        cwd=copy,
        check=True,
        timeout=120,
    )
    [wheel] = (copy / "out").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"offsetzero"}
    for needed in (
        "offsetzero/py.typed",
        "offsetzero/retry/policy.py",
        "offsetzero/schemas/contracts/document.uploaded/v1.avsc",
        "offsetzero/embedded/kafka.lock",
        "offsetzero/store/migrations/env.py",
    ):
        assert needed in names
