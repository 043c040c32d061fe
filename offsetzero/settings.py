"""Settings of one process: the environment (`OFFSETZERO_…`), then what a running `offsetzero up` left behind.

Nested names are joined by two underscores: `OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS`.
"""

import json
import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin
from urllib.parse import urlsplit

import platformdirs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from offsetzero import endpoints
from offsetzero.errors import ConfigurationError

PREFIX = "OFFSETZERO_"


def _no_other_topic(name: str) -> str:
    if name in ("dlq", "redrive"):
        raise ValueError("is the name of another topic of each group")
    return name


def _names_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname and parts.port != 0) and not any(one.isspace() or one in "?#" for one in url)
    except ValueError:  # brackets that are not closed; a port above 65535
        return False


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


TierName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$"), AfterValidator(_no_other_topic)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class KafkaSettings(_Section):
    """The cluster."""

    bootstrap_servers: str = ""
    """`host:port`, several with commas between them."""
    options: dict[str, str] = {}
    """Passed to librdkafka as they are, as a JSON object: TLS, SASL and the like."""
    namespace: Annotated[str, Field(pattern=r"^([a-zA-Z0-9][a-zA-Z0-9._-]*[._-])?$", max_length=60)] = ""
    """Prefix of all topics, group ids and transactional ids, for several environments on one cluster: `staging.`"""
    replication_factor: Annotated[int, Field(ge=1)] = 1
    """Replicas of a topic when it is made; 3 in production."""
    partitions: Annotated[int, Field(ge=1)] = 6
    """Partitions of an event topic, and of the retry topics of the groups that read it, when it is made."""
    group_protocol: Literal["auto", "consumer", "classic"] = "auto"
    """`consumer` is KIP-848 (brokers from 4.0, or 3.7 with it switched on), `classic` the older one; `auto` takes
    `consumer` where the cluster serves it."""

    def client_config(self) -> dict[str, Any]:
        """librdkafka properties that every client of this process starts from."""
        # 5: no news of every connection that the broker closes because it was idle
        return {"log_level": 5, **self.options, "bootstrap.servers": self.bootstrap_servers}


Delays = dict[TierName, Annotated[Seconds, Field(le=30 * 24 * 60 * 60)]]


class RetrySettings(_Section):
    """What happens after a failure that is worth another try."""

    delays: Delays = {"retry-1m": 60.0, "retry-10m": 600.0}
    """The tiers in order, seconds each, as a JSON object. A tier's name is the suffix of its topic."""


class EndpointSettings(_Section):
    """An OpenAI-compatible endpoint. Why these times: docs/providers.md."""

    base_url: str = ""
    """Up to and with `/v1`; empty for none."""
    api_key: SecretStr = SecretStr("")
    """Sent as a bearer token."""
    connect_timeout: Seconds = 5.0
    """Seconds to open a connection."""
    write_timeout: Seconds = 10.0
    """Seconds to take a request."""
    read_timeout: Seconds = 60.0
    """Seconds between two pieces of an answer."""
    total_timeout: Seconds = 120.0
    """Seconds for one call in all."""

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        if value and not _names_a_host(value):
            raise ValueError("must be a URL with a host, without blanks and without ?")
        return value

    @field_validator("api_key")
    @classmethod
    def _is_header(cls, value: SecretStr) -> SecretStr:
        key = value.get_secret_value().strip()  # files and `echo` end a key with a line feed
        if not all("!" <= one <= "~" for one in key):  # later, the error of the header would have the key in it
            raise ValueError("must be printable ASCII without blanks")
        return SecretStr(key)


class LlmSettings(EndpointSettings):
    """Where summaries are made; without `base_url` on this machine."""

    base_url: str = ""
    """Up to and with `/v1`; empty for the summariser of this machine."""
    model: str = "gpt-4o-mini"
    """The model's name as the endpoint knows it."""
    part_characters: Annotated[int, Field(ge=2_000, le=1_000_000)] = 24_000
    """Characters of a question to the model: a longer document is cut into parts."""
    parts_at_once: Annotated[int, Field(ge=1, le=100)] = 4
    """Parts of one document that are asked about at one time."""
    keep_seconds: Annotated[Seconds, Field(ge=60)] = 90 * 24 * 60 * 60.0
    """Seconds that the answers about parts are kept, for attempts, redrives and replays to come."""


class EmbeddingSettings(EndpointSettings):
    """Where texts get their vectors; without `base_url` search is by words alone."""

    base_url: str = ""
    """Up to and with `/v1`; empty for search by words alone."""
    model: Annotated[str, Field(min_length=1, max_length=200)] = "text-embedding-3-small"
    """The model's name as the endpoint knows it. Another one needs `offsetzero rebuild indexer`."""
    dimensions: Annotated[int, Field(ge=1, le=4000)] = 1536
    """Numbers of a vector of that model. Others need `offsetzero rebuild indexer`."""
    shorten: bool = False
    """Ask the endpoint for vectors of so many dimensions; for models that have more and can do with fewer."""
    batch_texts: Annotated[int, Field(ge=1, le=2048)] = 128
    """Texts of one call at most."""
    batch_bytes: Annotated[int, Field(ge=1)] = 200_000
    """Bytes of the texts of one call at most. A token is a byte at least, so it is a limit of tokens, too."""
    query_timeout: Seconds = 1.5
    """Seconds that a search waits for the vector of its query; then it is by words alone."""
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = 0.2
    """Cosine below which a text is not near a query. What is near differs between models."""


class ProviderLimits(_Section):
    """What differs for one provider."""

    calls: Annotated[int, Field(ge=1)] | None = None
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class ProviderSettings(_Section):
    """Systems that handlers call (`ctx.provider`): limits of each, over all processes."""

    calls: Annotated[int, Field(ge=1)] = 20
    """Calls of one provider at once."""
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 100.0
    """Calls of one provider a second; its answers 429 slow that down for a while."""
    probe_seconds: Seconds = 10.0
    """Between two calls that try whether a provider that is down is well again."""
    limits: dict[str, ProviderLimits] = {}
    """What differs for one, as a JSON object: `{"llm": {"calls": 50, "rate": 10}}`."""


class ApiSettings(_Section):
    """The HTTP API."""

    host: str = "127.0.0.1"
    """Address to bind."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port to bind; 0 takes a free one and logs it."""
    max_upload_bytes: Annotated[int, Field(gt=0)] = 50 * 1024 * 1024
    """Bytes; a larger upload is refused with 413, and a larger object that an event names is not read."""
    required_steps: Annotated[list[str], Field(min_length=1)] = ["indexer", "summariser"]
    """The groups that must finish before a run ends; as JSON in the environment."""
    tenant_in_flight: Annotated[int, Field(ge=1)] = 200
    """Runs of one tenant in flight in the lane for live traffic; what comes beyond takes that for backfill."""
    pool_size: Annotated[int, Field(ge=1)] = 10
    """The most connections to the database."""
    requests_at_once: Annotated[int, Field(ge=1)] = 256
    """Uploads, and as many other requests, that are worked on at once; more are answered 503, with `Retry-After`."""
    requests_per_second: Annotated[float, Field(gt=0)] = 500.0
    """Of one tenant, by each API process; more are answered 429, with `Retry-After`."""
    burst: Annotated[int, Field(ge=1)] = 5_000
    """Requests that a tenant may send at once, after a quiet time."""
    keep_event_seconds: Annotated[Seconds, Field(ge=60)] = 24 * 60 * 60.0
    """Seconds that events of runs are kept for streams that come again; after that they begin with a `resync`."""
    streams: Annotated[int, Field(ge=1)] = 2_000
    """Streams of runs that a tenant may have open at once, of each API process; one more is answered 429."""


class WebhookSettings(_Section):
    """Deliveries of the notifier."""

    allow_private_targets: bool = False
    """Deliver to loopback and private addresses too. Only for development: it opens the internal network."""
    connect_timeout: Seconds = 5.0
    """Seconds to open a connection."""
    total_timeout: Seconds = 15.0
    """Seconds for one delivery in all."""
    delays: Delays = {
        "retry-5s": 5.0,
        "retry-5m": 300.0,
        "retry-30m": 1_800.0,
        "retry-2h": 7_200.0,
        "retry-6h": 21_600.0,
        "retry-13h": 46_800.0,
    }
    """The retry tiers of the group `notifier`, which has its own: a receiver may be away for most of a day."""


class GroupSettings(_Section):
    """Limits of one consumer process."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Records handled at once, each of another key."""
    bulk_concurrency: Annotated[int, Field(ge=1)] | None = None
    """Of these, records of the lane for backfill (`documents.bulk`); by default a quarter."""
    per_tenant: Annotated[int, Field(ge=1)] | None = None
    """Of these, records of one tenant, where the group declares nothing; by default three quarters in groups whose work
    is a step of runs, and no limit in others."""
    max_in_flight: Annotated[int, Field(ge=1)] = 5_000
    """Records fetched and not done."""
    max_in_flight_bytes: Annotated[int, Field(ge=1)] = 64 * 1024 * 1024
    """Bytes of keys and values fetched and not done."""
    drain_seconds: Seconds = 20.0
    """How long running handlers may take to end after SIGTERM."""
    stuck_seconds: Seconds = 60.0
    """A handler at work for longer is named as stuck: in the log, in `/healthz` and in the metrics."""
    stall_seconds: Seconds = 120.0
    """A partition that has lag, does not move and has no reason for that for so long ends the process."""


class StepSettings(_Section):
    """Steps of runs, and `offsetzero sweeper`, which has those begun again that nobody works on any more."""

    max_duration: Seconds = 3600.0
    """Seconds that one attempt at a step may take, where its group declares nothing else; then it is retried."""
    sweep_seconds: Annotated[Seconds, Field(le=60)] = 2.0
    """Seconds between two looks of the sweeper."""


class UsageSettings(_Section):
    """The group `usage`, and `GET /usage`, which asks it."""

    window_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds of one window."""
    keep_seconds: Annotated[int, Field(ge=1, le=24 * 60 * 60)] = 60 * 60
    """For how long a window is kept after its end."""
    urls: list[str] = []
    """Where the members of the group serve their metrics, all of them, as a JSON array; the API asks them."""


class DocumentSettings(_Section):
    """Reading of documents, in child processes of indexer and summariser; what each document may take."""

    workers: Annotated[int, Field(ge=1, le=256)] = 2
    """Documents that one process of a group reads at once; each takes up to one core and 50 MB besides `memory`."""
    memory: Annotated[int, Field(ge=64 * 1024 * 1024)] = 512 * 1024 * 1024
    """Bytes of memory for one document; one that needs more fails as `too-much-memory`."""
    cpu_seconds: Annotated[int, Field(ge=1)] = 60
    """Seconds of computing for one document; one that needs more fails as `too-slow`."""
    wall_seconds: Seconds = 120.0
    """Seconds from start to end for one document, on a busy machine too; past them it fails as `too-slow`."""


class Settings(BaseSettings):
    """Everything a process can be told. Use `load()`, which reports all mistakes together."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    home: Path = Field(default_factory=lambda: default_home())
    """Data of embedded servers and the local object store."""
    database_url: SecretStr = SecretStr("")
    """`postgresql://user:password@host:port/name`."""
    object_store_url: str = ""
    """`file://`, `s3://`, `gs://` or `az://`; by default a folder under `home`."""
    metrics_host: str = "127.0.0.1"
    """Address of this process's `/metrics`."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of this process's `/metrics`; 0 takes a free one and logs it."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The lowest level that is logged."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`json` or `text`; `auto` is text in a terminal and JSON elsewhere."""
    source: Annotated[str, Field(min_length=1)] = "/offsetzero"
    """`ce_source` of the events that this process publishes; an event id is unique within it."""
    kafka: KafkaSettings = KafkaSettings()
    retry: RetrySettings = RetrySettings()
    llm: LlmSettings = LlmSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    providers: ProviderSettings = ProviderSettings()
    api: ApiSettings = ApiSettings()
    webhooks: WebhookSettings = WebhookSettings()
    groups: GroupSettings = GroupSettings()
    documents: DocumentSettings = DocumentSettings()
    usage: UsageSettings = UsageSettings()
    steps: StepSettings = StepSettings()

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

    def retry_of(self, group: str) -> RetrySettings:
        """The retry tiers of a group that declares none itself."""
        return RetrySettings(delays=self.webhooks.delays) if group == "notifier" else self.retry

    @property
    def objects(self) -> str:
        """URL of the object store."""
        return self.object_store_url or (self.home / "objects").absolute().as_uri()


def default_home() -> Path:
    """Where embedded data live unless `OFFSETZERO_HOME` says otherwise."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/offsetzero")
    return Path(platformdirs.user_data_dir("offsetzero"))


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
    settings = None
    unreadable = _unreadable(Settings, PREFIX)
    problems += [f"{name}: {said}" for name, said in unreadable.items()]
    token = _ignored.set(frozenset(unreadable))
    try:
        settings = _LoadedSettings(**overrides)
    except ValidationError as error:
        problems += [_describe(item) for item in error.errors()]
    finally:
        _ignored.reset(token)
    problems += _unknown_variables()
    if settings is not None:
        if "kafka" in needs and not settings.kafka.bootstrap_servers:
            problems.append(f"{PREFIX}KAFKA__BOOTSTRAP_SERVERS: not set, and {endpoints.none(home)}, or name a cluster")
        if "database" in needs and not settings.database_url.get_secret_value():
            problems.append(f"{PREFIX}DATABASE_URL: not set, and {endpoints.none(home)}, or name a database")
    if problems or settings is None:
        raise ConfigurationError(problems)
    return settings


_ignored: ContextVar[frozenset[str]] = ContextVar("ignored", default=frozenset())
"""Variables that are reported already; without them the others can be looked at in the same go."""


class _EnvironmentSource(EnvSettingsSource):
    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in os.environ.items() if name not in _ignored.get()}


class _EndpointsSource(EnvSettingsSource):
    """What a running `offsetzero up` left behind, read as if it stood in the environment."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        home = Path(os.environ.get(PREFIX + "HOME") or default_home())
        return {name.lower(): value for name, value in endpoints.read(home).items()}


class _LoadedSettings(Settings):
    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _EnvironmentSource(settings_cls), _EndpointsSource(settings_cls)


def _unreadable(model: type[BaseModel], prefix: str) -> dict[str, str]:
    """Variables that cannot be read at all: pydantic-settings stops at the first, naming only its section."""
    found = {}
    for field_name, field in model.model_fields.items():
        name, kind = prefix + field_name.upper(), field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if name in os.environ:
                first = next(iter(kind.model_fields)).upper()
                found[name] = f"names a group of settings; set one of them, such as {name}__{first}"
            found.update(_unreadable(kind, f"{name}__"))
        elif get_origin(kind) in (dict, list) and name in os.environ:
            try:
                json.loads(os.environ[name])
            except ValueError as error:
                found[name] = f"must be a JSON {'object' if get_origin(kind) is dict else 'array'}: {error}"
    return found


def _describe(item: Any) -> str:
    name = PREFIX + "__".join(str(part) for part in item["loc"]).upper()
    # The value of a variable that does not exist may be a password in the wrong place.
    hidden = item["type"] == "extra_forbidden" or any(word in name for word in ("URL", "KEY", "OPTIONS"))
    shown = "" if hidden else f" (got {item['input']!r})"
    return f"{name}: {item['msg']}{shown}"


def _unknown_variables() -> list[str]:
    fields = {PREFIX + name.upper() for name in Settings.model_fields}
    return [
        f"{name}: no such setting; see docs/configuration.md"
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name.split("__")[0] not in fields
    ]
