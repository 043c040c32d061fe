"""`make compose-demo`: build the image, bring docker-compose.yml up, run the demo against it, take all of it down.

It is a project of its own beside any other: another name, a password made for this run, free ports, volumes that
are removed. KEEP=1 in the environment leaves it running, and prints how to take it down.
"""

import ipaddress
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PORTS = ("API_PORT", "KAFKA_PORT", "POSTGRES_PORT")
HOST = "host.docker.internal"  # this machine, as docker-compose.yml names it for the notifier
LOOPBACK = "127.0.0.1"


def main() -> int:
    """Do all of it.

    Returns:
        The demo's exit status, or 1 when the containers did not come up.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: sys.exit(130))
    compose = _compose()
    if compose is None:
        print("compose-demo needs a Docker engine with Compose: https://docs.docker.com/engine/", file=sys.stderr)
        return 1
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")},
        **_free_ports(),
        "POSTGRES_PASSWORD": secrets.token_urlsafe(24),
        "WEBHOOKS_ALLOW_PRIVATE_TARGETS": "true",  # the demo's receiver is on this machine
        "COMPOSE_PROJECT_NAME": f"offsetzero-demo-{os.getpid()}",
        "OFFSETZERO_IMAGE": "offsetzero:demo",
    }
    try:
        started = _run([*compose, "build"], environment) or _run([*compose, "up", "-d", "--no-build"], environment)
        status = 1 if started else _demo(environment)
        if status:
            _run([*compose, "ps"], environment)
            _run([*compose, "logs", "--tail=40"], environment)
    finally:
        down = [*compose, "down", "-v", "--remove-orphans", "--timeout", "30"]
        if os.environ.get("KEEP"):
            name = environment["COMPOSE_PROJECT_NAME"]
            print(
                f"Kept: API at http://{LOOPBACK}:{environment['API_PORT']}. Take it down with\n"
                f"  POSTGRES_PASSWORD=- COMPOSE_PROJECT_NAME={name} {' '.join(down)}"
            )
        else:
            _run(down, environment)
    return status


def _demo(environment: dict[str, str]) -> int:
    settings = {
        "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": f"{LOOPBACK}:{environment['KAFKA_PORT']}",
        "OFFSETZERO_DATABASE_URL": f"postgresql://offsetzero@{LOOPBACK}:{environment['POSTGRES_PORT']}/offsetzero",
        "PGPASSWORD": environment["POSTGRES_PASSWORD"],
    }
    others = {name: value for name, value in environment.items() if not name.startswith("OFFSETZERO_")}
    api = f"http://{LOOPBACK}:{environment['API_PORT']}"
    arguments = ["--against", api, "--receive-at", _receiver_address(), "--receive-as", HOST]
    return _run([sys.executable, "-m", "offsetzero", "demo", *arguments], {**others, **settings})


def _compose() -> list[str] | None:
    """Compose as a plugin of Docker's, or as the program of its own that it was before."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    return None


def _receiver_address() -> str:
    """The address of this machine that containers reach: the gateway of their network, where it is on this machine
    (Linux); else loopback, which Docker Desktop forwards to.
    """
    shown = subprocess.run(["docker", "network", "inspect", "bridge"], capture_output=True, check=True)
    config = json.loads(shown.stdout)[0]["IPAM"]["Config"][0]
    gateway = config.get("Gateway") or str(next(ipaddress.ip_network(config["Subnet"]).hosts()))
    with socket.socket() as probe:
        try:
            probe.bind((gateway, 0))
        except OSError:
            return LOOPBACK
    return str(gateway)


def _free_ports() -> dict[str, str]:
    probes = [socket.create_server((LOOPBACK, 0)) for _ in PORTS]
    found = {name: str(probe.getsockname()[1]) for name, probe in zip(PORTS, probes, strict=True)}
    for probe in probes:
        probe.close()
    return found


def _run(command: list[str], environment: dict[str, str]) -> int:
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
