"""`offsetzero topics`: the declared topics, the difference to the cluster, and its removal."""

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from offsetzero.settings import Settings
    from offsetzero.topics.catalogue import Topic
    from offsetzero.topics.plan import Plan

app = typer.Typer(no_args_is_help=True, help="Declared and existing topics: plan, apply, list, describe.")

_DIFFERENT = 3

Group = Annotated[
    list[str] | None,
    typer.Option("--group", help="A group of your own, as package.module:attribute; may be given again."),
]
Module = Annotated[
    list[str] | None,
    typer.Option("--module", help="Python module that declares topics of your own; may be given again."),
]
AllowRekey = Annotated[
    bool, typer.Option("--allow-rekey", help="Add partitions, although keys move to other partitions.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command()
def plan(
    group: Group = None,
    module: Module = None,
    allow_rekey: AllowRekey = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit status 3 when there is something to do.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what `apply` would do. Exit status 1 when it would be refused."""
    from offsetzero import settings as settings_module

    settings = settings_module.load(needs=frozenset({"kafka"}))
    made = _plan(settings, *_groups(settings, group, module), allow_rekey)
    _show(made, as_json)
    if made.refusals:
        raise typer.Exit(1)
    if made.actions and exit_code:
        raise typer.Exit(_DIFFERENT)


@app.command()
def apply(group: Group = None, module: Module = None, allow_rekey: AllowRekey = False, as_json: AsJson = False) -> None:
    """Make the topics as declared, and publish the contracts to the topic `schemas`."""
    from offsetzero import settings as settings_module
    from offsetzero.schemas import frozen
    from offsetzero.topics import cluster
    from offsetzero.topics.schema_log import SchemaLog

    settings = settings_module.load(needs=frozenset({"kafka"}))
    made = _plan(settings, *_groups(settings, group, module), allow_rekey)
    if made.refusals:
        _show(made, as_json)
        raise typer.Exit(1)
    cluster.apply(settings, made)
    log = SchemaLog(settings)
    contracts = [contract.schema for versions in frozen.of_package().values() for contract in versions]
    published = log.publish(contracts)
    log.close()
    _show(made, as_json, done=True, published=published)


@app.command("list")
def list_topics(group: Group = None, module: Module = None, as_json: AsJson = False) -> None:
    """List the declared topics, what they are for, and whether they exist."""
    from offsetzero import settings as settings_module
    from offsetzero.topics import catalogue, cluster

    settings = settings_module.load(needs=frozenset({"kafka"}))
    declared = catalogue.declared(settings, *_groups(settings, group, module))
    existing = cluster.partitions(settings)
    rows = [_row(topic, existing.get(topic.name)) for topic in declared]
    known = {topic.name for topic in declared}
    rows += [
        {
            "topic": name,
            "kind": "undeclared",
            "group": catalogue.owner_of(name, existing),
            "partitions": count,
            "declared_partitions": None,
        }
        for name, count in sorted(existing.items())
        if name not in known
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from offsetzero.cli import rows as lines

    shown = [
        [
            row["topic"],
            f"of group {row['group']}" if row["kind"] == "undeclared" and row["group"] else row["kind"],
            "missing" if row["partitions"] is None else str(row["partitions"]),
            row.get("retention", "-"),
            row.get("cleanup", "-"),
            row.get("key") or "-",
            ", ".join(row.get("event_types", ())) or "-",
        ]
        for row in rows
    ]
    columns = ("topic", "kind", "partitions", "retention", "cleanup", "key", "event types")
    lines.show(columns, shown, first=5, right={"partitions"})


@app.command()
def describe(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, by the name that `topics list` shows.")],
    as_json: AsJson = False,
) -> None:
    """Say what a topic keeps and for how long, and what each of its partitions still has.

    Example: offsetzero topics describe documents
    """
    from offsetzero import settings as settings_module
    from offsetzero.cli import rows as lines
    from offsetzero.topics import cluster, retained

    settings = settings_module.load(needs=frozenset({"kafka"}))
    parts = retained.retained(settings, name)
    config = cluster.read(settings, [name])[name].config
    kept = {"retention": _kept(config), "cleanup": config.get("cleanup.policy", "delete")}
    shown = [
        {
            "partition": one.partition,
            "deleted": one.low,
            "first": one.low,
            "since": one.since.isoformat() if one.since else None,
            "end": one.end,
        }
        for one in parts
    ]
    if as_json:
        typer.echo(json.dumps({"topic": name, **kept, "partitions": shown}, indent=2))
        return
    typer.echo(f"{name} keeps: {kept['retention']} (cleanup.policy {kept['cleanup']})")
    columns = ("partition", "deleted", "first", "end", "since")
    texts = [["-" if one[column] is None else str(one[column]) for column in columns] for one in shown]
    lines.show(columns, texts, right={"partition", "deleted", "first", "end"})


def _groups(
    settings: "Settings", own: list[str] | None, modules: list[str] | None
) -> tuple[dict[str, tuple[str, ...]], dict[str, list[str]]]:
    """The sources of every group, and the retry tiers of the user's own; the topics of these are declared."""
    from offsetzero.imports import import_module
    from offsetzero.topics import catalogue

    for module in modules or ():
        import_module(module)
    sources, tiers = dict(catalogue.GROUPS), {}
    if own:
        from offsetzero.consumers import registry

        for name in own:
            group = registry.load(name)
            sources[group.name] = tuple(group.topics())
            tiers[group.name] = [tier.name for tier in group.policy(settings).tiers]
    return sources, tiers


def _plan(
    settings: "Settings", sources: dict[str, tuple[str, ...]], tiers: dict[str, list[str]], allow_rekey: bool
) -> "Plan":
    from offsetzero.topics import catalogue, cluster
    from offsetzero.topics.plan import Intent, make_plan

    declared = catalogue.declared(settings, sources, tiers)
    existing = cluster.read(settings, [topic.name for topic in declared])
    waiting: dict[str, int] = {}
    if allow_rekey:
        from offsetzero.topics import lag

        for group in sources:
            for one in lag.group_offsets(settings, group):
                waiting[one.topic] = waiting.get(one.topic, 0) + one.lag
    return make_plan(declared, existing, Intent(allow_rekey, sources, waiting))


def _row(topic: "Topic", partitions: int | None) -> dict[str, Any]:
    cleanup = topic.config.get("cleanup.policy", "delete")
    return {
        "topic": topic.name,
        "kind": str(topic.kind),
        "group": topic.group,
        "partitions": partitions,
        "declared_partitions": topic.partitions,
        "retention": _kept(topic.config),
        "cleanup": cleanup,
        "key": topic.key,
        "event_types": list(topic.event_types),
    }


def _kept(config: Mapping[str, str]) -> str:
    """How long records are kept, in words."""
    size = config.get("retention.bytes", "-1")
    times = _days(config.get("retention.ms"))
    cleanup = config.get("cleanup.policy", "delete")
    if "compact" in cleanup:
        return "last of a key" + (f", for {times}" if "delete" in cleanup else "")
    return times if size == "-1" else f"{times}, at most {int(size):,} bytes of a partition"


def _days(retention_ms: str | None) -> str:
    if retention_ms is None:
        return "broker's default"
    return "forever" if retention_ms == "-1" else f"{int(retention_ms) / 86_400_000:g} days"


def _show(plan: "Plan", as_json: bool, *, done: bool = False, published: int = 0) -> None:
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "applied": done,
                    "actions": [{"action": type(one).__name__, **dataclasses.asdict(one)} for one in plan.actions],
                    "refusals": list(plan.refusals),
                    "notices": list(plan.notices),
                    "schemas_published": published,
                },
                indent=2,
            )
        )
        return
    for notice in plan.notices:
        typer.echo(f"note     {notice}", err=True)
    for refusal in plan.refusals:
        typer.echo(f"refused  {refusal}", err=True)
    for action in plan.actions:
        typer.echo(f"{'done' if done else 'would':<8} {action}")
    if not plan.actions and not plan.refusals:
        typer.echo("The topics are as declared.")
    if published:
        typer.echo(f"done     publish {published} contracts to the topic schemas")
