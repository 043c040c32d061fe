"""What must be in the servers before our processes start: topics, schemas, tables."""

from offsetzero.errors import ServerError
from offsetzero.settings import Settings


def apply_topics(config: Settings) -> int:
    """Bring the topics to what is declared, and publish the schemas that this version writes.

    Returns:
        The number of declared topics.
    """
    from offsetzero.schemas import frozen
    from offsetzero.topics import catalogue, cluster
    from offsetzero.topics.plan import make_plan
    from offsetzero.topics.schema_log import SchemaLog

    declared = catalogue.declared(config)
    cluster.apply(config, make_plan(declared, cluster.read(config, [topic.name for topic in declared])))
    contracts = [contract.schema for versions in frozen.of_package().values() for contract in versions]
    log = SchemaLog(config)
    try:
        log.publish(contracts)
    finally:
        log.close()
    return len(declared)


def migrate(config: Settings) -> None:
    """Bring the tables to this version.

    Raises:
        ServerError: they are of a newer one.
    """
    from alembic.util import CommandError

    from offsetzero.store.migrate import upgrade

    try:
        upgrade(config.database_url.get_secret_value())
    except CommandError as error:
        raise ServerError(
            f"the database's tables are of a newer offsetzero ({error}); start it with that one again, or choose "
            "another database or OFFSETZERO_HOME. Nothing was changed"
        ) from error
