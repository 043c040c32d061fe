"""offsetzero's GroupRuntime in this process, as `offsetzero groups run` runs it."""

import argparse
from typing import Any

from prometheus_client import Counter
from terms import Meter

from offsetzero import logs, metrics
from offsetzero.cli import collector
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.resources import Resources
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.settings import GroupSettings, KafkaSettings, Settings
from offsetzero.topics.lag import group_offsets

SOURCE = "documents"


def group(args: argparse.Namespace, **options: Any) -> ConsumerGroup:
    """The group of the command line, without handlers yet."""
    return ConsumerGroup(args.group, topics=[SOURCE], **{"database": False, **options})


def run(
    group: ConsumerGroup,
    args: argparse.Namespace,
    meter: Meter,
    *,
    resources: type[Resources] | None = None,
    **limits: Any,
) -> dict[str, Any]:
    """Run a member until the meter is full.

    Args:
        group: with its handlers.
        args: of the command line.
        meter: ends it.
        resources: other clients than the usual ones.
        limits: settings of one process's groups.

    Returns:
        What the runtime itself counted, and how much of the topic the group has not committed.
    """
    logs.configure(process=group.name, level="WARNING")
    namespace = args.topic.removesuffix(SOURCE)
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers=args.bootstrap, namespace=namespace),
        database_url=getattr(args, "database", ""),
        groups=GroupSettings(**limits),
    )
    runtime = GroupRuntime(group, settings, resources=(resources or Resources)(settings))
    pauses = []

    def done() -> None:
        runtime.stop()
        pauses.append(_total(metrics.PAUSES))  # before those of the orderly end

    meter.done = done
    collector.spare()
    runtime.run()
    places = group_offsets(settings, group.name, [SOURCE])
    return {"pauses": pauses[0], "uncommitted": sum(one.lag for one in places)}


def _total(counter: Counter) -> float:
    return sum(one.value for metric in counter.collect() for one in metric.samples if one.name.endswith("_total"))
