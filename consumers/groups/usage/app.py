"""The Faust app: its settings, its table, and the agent that counts."""

from pathlib import Path
from typing import Any

import faust

from offsetzero.clock import SYSTEM
from offsetzero.consumers.groups.usage import NAME, windows
from offsetzero.consumers.groups.usage.credentials import credentials
from offsetzero.consumers.groups.usage.reading import CloudEvents
from offsetzero.schemas.codec import Codec, FindSchema
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.topics import catalogue
from offsetzero.topics.names import Names

SOURCES = catalogue.LISTENERS[NAME]


def make_app(settings: Settings, find_schema: FindSchema, data: Path) -> tuple[Any, Any]:
    """The app and its table.

    Args:
        settings: name the cluster; `usage` says how long a window is and how long it is kept.
        find_schema: looks up writer schemas.
        data: a folder that Faust insists on; a table in memory writes nothing there.

    Raises:
        ConfigurationError: Faust's client cannot reach such a cluster.
    """
    names = Names(settings.kafka.namespace)
    group = names.group(NAME)
    app = faust.App(
        group,
        broker=[f"kafka://{server.strip()}" for server in settings.kafka.bootstrap_servers.split(",")],
        broker_credentials=credentials(settings.kafka.options),
        # The heartbeat has a thread of its own. Faust's minute would pass before another takes over from a dead member.
        broker_session_timeout=10.0,
        broker_heartbeat_interval=3.0,
        broker_client_id=f"offsetzero-{NAME}",
        consumer_auto_offset_reset="earliest",
        datadir=str(data),
        store="memory://",
        table_standby_replicas=0,
        # Topics are declared in our catalogue, with our replication and retention; Faust makes none.
        topic_allow_declare=False,
        topic_disable_leader=True,
        # Else every event that is in work when the process is asked to end is read again.
        stream_wait_empty=True,
        stream_recovery_delay=0.0,
        # Its own HTTP server would open a port that shows the table to everybody.
        web_enabled=False,
        origin=None,
        autodiscover=False,
    )
    table = app.Table(
        "windows",
        changelog_topic=app.topic(
            names.topic(catalogue.USAGE_CHANGELOG),
            key_serializer="json",
            value_serializer="json",
            internal=True,
            acks=False,
            allow_empty=True,
            maxsize=131_072,  # as Faust has it for a changelog that it names itself
        ),
    )
    _count(app, table, settings, find_schema)
    return app, table


def _count(app: Any, table: Any, settings: Settings, find_schema: FindSchema) -> None:
    names, usage = Names(settings.kafka.namespace), settings.usage
    topic = app.topic(*(names.topic(source) for source in SOURCES), schema=CloudEvents(Codec(find_schema)))

    @app.agent(topic, name=f"{__name__}.count")  # type: ignore[untyped-decorator]
    async def count(stream: Any) -> None:
        async for record in stream.events():
            fact = windows.fact_of(record.value) if isinstance(record.value, Event) else None
            if fact is None:
                continue
            message = record.message
            start = windows.start_of(fact.at, usage.window_seconds)
            if not windows.is_kept(start, SYSTEM.now().timestamp(), usage.keep_seconds, usage.window_seconds):
                continue
            key = windows.Key(message.partition, fact.tenant, start)
            cell = windows.added(table.get(key), fact, message.topic, message.offset)
            if cell is not None:
                table[key] = cell
