"""Settings of one process: the environment (`OFFSETZERO_…`), then what a running `offsetzero up` left behind.

Nested names are joined by two underscores: `OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS`.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from offsetzero.errors import ConfigurationError

PREFIX = "OFFSETZERO_"
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(_Section):
    """The cluster. `options` are passed to librdkafka as they are (TLS, SASL)."""

    bootstrap_servers: str = ""
    options: dict[str, str] = {}
    namespace: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]*$", max_length=60)] = ""
    """Prefix of all topics, group ids and transactional ids, for several environments on one cluster."""
    replication_factor: Annotated[int, Field(ge=1)] = 1
    partitions: Annotated[int, Field(ge=1)] = 6
    """Partitions of an event topic, and of the retry topics of the groups that read it, when it is made."""
    group_protocol: Literal["consumer", "classic"] = "consumer"

    def client_config(self) -> dict[str, Any]:
        """librdkafka properties that every client of this process starts from."""
        return {**self.options, "bootstrap.servers": self.bootstrap_servers}


class RetrySettings(_Section):
    """Delays of the retry tiers, seconds, in order. A tier's name is the suffix of its topic."""

    delays: dict[str, Seconds] = {"retry-1m": 60.0, "retry-10m": 600.0}


class LlmSettings(_Section):
    """An OpenAI-compatible endpoint; without `base_url` summaries are made on this machine."""

    base_url: str = ""
    api_key: SecretStr = SecretStr("")
    model: str = "gpt-4o-mini"
    connect_timeout: Seconds = 5.0
    read_timeout: Seconds = 60.0
    total_timeout: Seconds = 120.0


class ApiSettings(_Section):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    max_upload_bytes: Annotated[int, Field(gt=0)] = 50 * 1024 * 1024
    required_steps: Annotated[list[str], Field(min_length=1)] = ["indexer", "summariser"]
    """The groups that must finish before a run ends; as JSON in the environment."""
    pool_size: Annotated[int, Field(ge=1)] = 10
    """The most connections to the database."""


class WebhookSettings(_Section):
    allow_private_targets: bool = False
    """Deliver to loopback and private addresses too. Only for development: it opens the internal network."""
    connect_timeout: Seconds = 5.0
    total_timeout: Seconds = 15.0


class GroupSettings(_Section):
    """Limits of one consumer process."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 16
    max_in_flight: Annotated[int, Field(ge=1)] = 5_000
    max_in_flight_bytes: Annotated[int, Field(ge=1)] = 64 * 1024 * 1024
    drain_seconds: Seconds = 20.0


class Settings(BaseSettings):
    """Everything a process can be told. Use `load()`, which reports all mistakes together."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    home: Path = Field(default_factory=lambda: default_home())
    """Data of embedded servers and the local object store."""
    database_url: SecretStr = SecretStr("")
    object_store_url: str = ""
    """`file://`, `s3://`, `gs://` or `az://`; by default a folder under `home`."""
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of this process's `/metrics`; 0 takes a free one and logs it."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    source: Annotated[str, Field(min_length=1)] = "/offsetzero"
    """`ce_source` of the events that this process publishes; an event id is unique within it."""
    kafka: KafkaSettings = KafkaSettings()
    retry: RetrySettings = RetrySettings()
    llm: LlmSettings = LlmSettings()
    api: ApiSettings = ApiSettings()
    webhooks: WebhookSettings = WebhookSettings()
    groups: GroupSettings = GroupSettings()

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr) -> SecretStr:
        url = value.get_secret_value()
        if url and not url.startswith(("postgresql://", "postgres://")):
            raise ValueError("must start with postgresql:// (PostgreSQL is the only supported database)")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings

    @property
    def objects(self) -> str:
        """URL of the object store."""
        return self.object_store_url or (self.home / "objects").absolute().as_uri()


def default_home() -> Path:
    """Where embedded data live unless `OFFSETZERO_HOME` says otherwise."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/offsetzero")
    return Path(platformdirs.user_data_dir("offsetzero"))


def endpoints_file(home: Path) -> Path:
    """The file in which a running `offsetzero up` leaves its endpoints for other commands."""
    return home / "endpoints.json"


def write_endpoints(home: Path, endpoints: Mapping[str, str]) -> None:
    """Leave endpoints (names as in the environment) for other commands; readable by the owner only."""
    path = endpoints_file(home)
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dict(endpoints), file)
    temporary.replace(path)


def load(*, needs: frozenset[Literal["kafka", "database"]] = frozenset(), **overrides: Any) -> Settings:
    """Read the settings of this process.

    The environment wins over the endpoints that a running `offsetzero up` wrote under `home`.

    Args:
        needs: what must be known before the caller can start.
        overrides: values that win over everything, by field name.

    Raises:
        ConfigurationError: with every mistake, one a line.
    """
    problems: list[str] = []
    home = Path(os.environ.get(PREFIX + "HOME") or default_home())
    found = _read_endpoints(home)
    added = {name: value for name, value in found.items() if name not in os.environ}
    os.environ.update(added)  # pydantic-settings reads nested names only from there
    settings = None
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        problems += [_describe(item) for item in error.errors()]
    finally:
        for name in added:
            del os.environ[name]
    problems += _unknown_variables()
    if settings is not None:
        if "kafka" in needs and not settings.kafka.bootstrap_servers:
            problems.append(
                f"{PREFIX}KAFKA__BOOTSTRAP_SERVERS: not set, and no `offsetzero up` is running in {home}; "
                "start one, or name a cluster"
            )
        if "database" in needs and not settings.database_url.get_secret_value():
            problems.append(
                f"{PREFIX}DATABASE_URL: not set, and no `offsetzero up` is running in {home}; "
                "start one, or name a database"
            )
    if problems or settings is None:
        raise ConfigurationError(problems)
    return settings


def _read_endpoints(home: Path) -> dict[str, str]:
    try:
        data = json.loads(endpoints_file(home).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in data.items()} if isinstance(data, dict) else {}


def _describe(item: Any) -> str:
    name = PREFIX + "__".join(str(part) for part in item["loc"]).upper()
    shown = "" if "url" in name.lower() or "key" in name.lower() else f" (got {item['input']!r})"
    return f"{name}: {item['msg']}{shown}"


def _unknown_variables() -> list[str]:
    fields = {PREFIX + name.upper() for name in Settings.model_fields}
    return [
        f"{name}: no such setting; see docs/configuration.md"
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name.split("__")[0] not in fields
    ]
