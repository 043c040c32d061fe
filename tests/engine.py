"""The Docker engine, if there is one: what it has, and whether its machine is this one."""

import contextlib
import ipaddress
import socket
from collections.abc import Sequence

import docker
import docker.errors
from testcontainers.core.config import ConnectionMode, testcontainers_config
from testcontainers.core.docker_client import DockerClient, get_docker_host

LOOPBACK = "127.0.0.1"
_ANSWER_WITHIN = 10  # seconds


def name() -> str:
    """What answers.

    Raises:
        docker.errors.DockerException: none.
    """
    client = _client()
    try:
        return f"Docker engine {client.version()['Version']}"
    finally:
        client.close()


def obtainable(images: Sequence[str]) -> bool:
    """Whether images are there or a registry that the engine reaches has them."""
    client = _client()
    try:
        for image in _missing(client, images):
            client.images.get_registry_data(image)
    except docker.errors.APIError:
        return False
    finally:
        client.close()
    return True


def pull(images: Sequence[str]) -> None:
    """Fetch those images that are not there."""
    client = _client(timeout=600)
    try:
        for image in _missing(client, images):
            client.images.pull(image)
    finally:
        client.close()


def _client(timeout: int = _ANSWER_WITHIN) -> docker.DockerClient:
    host = get_docker_host()
    if host:
        return docker.DockerClient(base_url=host, timeout=timeout, use_ssh_client=host.startswith("ssh://"))
    return docker.from_env(timeout=timeout)


def _missing(client: docker.DockerClient, images: Sequence[str]) -> list[str]:
    present = {tag for image in client.images.list() for tag in image.tags}
    return [image for image in images if image not in present]


def is_here(client: DockerClient) -> bool:
    """Whether a port that the engine opens on its loopback is on ours: its machine is this one.

    Inside a container that was given the engine's socket it is not; testcontainers then knows another way.
    """
    if client.get_connection_mode() is ConnectionMode.docker_host:
        return client.host() in ("localhost", LOOPBACK, "::1")
    if testcontainers_config.connection_mode_override is not None:
        return False
    with socket.socket() as probe, contextlib.suppress(OSError, docker.errors.APIError):
        probe.bind((_gateway(client.client), 0))
        return True
    return False


def _gateway(client: docker.DockerClient) -> str:
    """The address that the engine's machine has in the default network."""
    config = client.networks.get("bridge").attrs["IPAM"]["Config"][0]
    first = next(ipaddress.ip_network(config["Subnet"]).hosts())
    return str(config.get("Gateway") or first)
