"""The tables of the database, described once; Alembic brings a database to this state.

Statements are plain SQL elsewhere; a test compares a migrated database with this description.
"""

from sqlalchemy import (
    ARRAY,
    DDL,
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    and_,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import UserDefinedType

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_NOW = text("now()")
_Time = DateTime(timezone=True)


class TransactionId(UserDefinedType[str]):
    """PostgreSQL's `xid8`: of 64 bits, none of which comes twice in a server's life."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "xid8"


# Keys of services that call the API. Only a SHA-256 of a key is stored: it cannot be shown again.
api_keys = Table(
    "api_keys",
    metadata,
    Column("key_hash", LargeBinary, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("created_at", _Time, nullable=False, server_default=_NOW),
    Column("revoked_at", _Time),
    Column("name", Text, nullable=False, server_default=""),
    Column("role", Text, nullable=False, server_default=text("'writer'")),
    CheckConstraint("role IN ('reader', 'writer')", name="role"),
)

# What tenants uploaded. `version` is the document's ce_sequence.
documents = Table(
    "documents",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    Column("uploaded_at", _Time, nullable=False, server_default=_NOW),
    Column("deleted_at", _Time),
)
Index(
    "ux_documents_tenant_id_sha256",
    documents.c.tenant_id,
    documents.c.sha256,
    unique=True,
    postgresql_where=documents.c.deleted_at.is_(None),
)
Index(
    "ix_documents_tenant_id_id",
    documents.c.tenant_id,
    documents.c.id,
    postgresql_where=documents.c.deleted_at.is_(None),
)

# One run works one document; its required steps decide how it ends.
runs = Table(
    "runs",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("document_id", Uuid, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'queued'")),
    Column("created_at", _Time, nullable=False, server_default=_NOW),
    Column("started_at", _Time),
    Column("finished_at", _Time),
    Column("last_event", Integer, nullable=False, server_default=text("0")),
    Column("lane", Text, nullable=False, server_default=text("'normal'")),
    CheckConstraint("status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="status"),
    CheckConstraint("lane IN ('normal', 'bulk')", name="lane"),
    Index("ix_runs_tenant_id_id", "tenant_id", "id"),
    Index("ix_runs_document_id", "document_id"),
    Index("ix_runs_in_flight", "tenant_id", postgresql_where=text("finished_at IS NULL AND lane = 'normal'")),
)

run_steps = Table(
    "run_steps",
    metadata,
    Column("run_id", Uuid, ForeignKey("runs.id", ondelete="CASCADE", name="fk_run_steps_run_id"), nullable=False),
    Column("step", Text, nullable=False),
    Column("required", Boolean, nullable=False, server_default=text("false")),
    Column("status", Text, nullable=False, server_default=text("'queued'")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("reason", Text),
    Column("detail", Text),
    Column("warning", Text),
    Column("due", _Time),
    Column("started_at", _Time),
    Column("finished_at", _Time),
    Column("input_tokens", BigInteger),  # used of a provider, over all attempts, also those that failed
    Column("output_tokens", BigInteger),
    Column("estimated_tokens", BigInteger),  # of these, those that no provider has told
    Column("parts", Integer),
    Column("parts_done", Integer),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),  # of its last lease: see store/leases.py
    Column("owner", Text),  # who has the lease, while the step is running
    Column("deadline", _Time),  # when it must have ended, while it is running
    PrimaryKeyConstraint("run_id", "step"),
    CheckConstraint("status IN ('queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')", name="status"),
    Index("ix_run_steps_deadline", "deadline", postgresql_where=text("deadline IS NOT NULL")),
)

# What was answered to POST requests that named an `Idempotency-Key`, for 24 hours; one at work has no row, but a lock.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", JSONB, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    Column("run_id", Uuid),  # that the answer shows
    PrimaryKeyConstraint("tenant_id", "key"),
    Index("ix_idempotency_keys_at", "at"),
    Index("ix_idempotency_keys_run_id", "run_id", postgresql_where=text("run_id IS NOT NULL")),
)

# What became of a run, for those who watch it: numbered from 1 without a gap, up to runs.last_event. Triggers on the
# two tables above write the row as it is then, in the transaction that changes it. Old ones are deleted
# (offsetzero.store.run_events.trim).
run_events = Table(
    "run_events",
    metadata,
    Column("run_id", Uuid, ForeignKey("runs.id", ondelete="CASCADE", name="fk_run_events_run_id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", JSONB, nullable=False),
    Column("at", _Time, nullable=False, server_default=text("clock_timestamp()")),
    PrimaryKeyConstraint("run_id", "number"),
    CheckConstraint("kind IN ('run', 'step')", name="kind"),
    Index("ix_run_events_at", "at"),
)

# Events to publish, written in the transaction of what they tell. Columns as in Debezium's outbox event
# router, and what our relay needs besides (docs/services.md); a trigger notifies the channel `offsetzero_outbox`.
# `number` is the order within a key: taken when a row is inserted, by one counter, whatever the clocks of writers say.
outbox = Table(
    "outbox",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("offsetzero_uuid7()")),
    Column("aggregatetype", Text, nullable=False),
    Column("aggregateid", Text),
    Column("type", Text, nullable=False),
    Column("payload", LargeBinary),
    Column("topic", Text),
    Column("headers", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("created_at", _Time, nullable=False, server_default=_NOW),
    Column("published_at", _Time),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column(
        "shard",
        SmallInteger,
        Computed(
            "(hashtextextended(COALESCE(aggregateid, id::text), 0::bigint) & 31::bigint)::smallint", persisted=True
        ),
    ),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("error", Text),
    Column("parked_at", _Time),
    Column("xid", TransactionId, server_default=text("pg_current_xact_id()")),
)
# Each is for one question about what waits: in its order by shard, the first of a key, and what a transaction has
# written. So each has a condition that only this question has: where little is known of the table, one that is small
# looks as good for the others, and would be read from end to end, with all that is published and not cleared away.
_waits = outbox.c.published_at.is_(None), outbox.c.parked_at.is_(None)
for _name, _columns in {
    "ix_outbox_waiting_by_shard": (outbox.c.shard, outbox.c.number),
    "ix_outbox_waiting_by_key": (outbox.c.aggregateid, outbox.c.number),
    "ix_outbox_come": (outbox.c.xid,),
}.items():
    Index(_name, *_columns, postgresql_where=and_(*_waits, _columns[0].is_not(None)))
Index(
    "ix_outbox_troubled",
    outbox.c.aggregateid,
    postgresql_where=and_(outbox.c.error.is_not(None), outbox.c.published_at.is_(None)),
)
Index("ix_outbox_published_at", outbox.c.published_at, postgresql_where=outbox.c.published_at.is_not(None))
event.listen(
    outbox,
    "before_create",
    DDL(  # type: ignore[no-untyped-call]
        "CREATE OR REPLACE FUNCTION offsetzero_uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$"
        " SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send((extract("
        "epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid $$"
    ),
)

# The audit of operators who discard rows of it: `id` is the row's, the event that was never published. Without its
# payload, which may hold what is to be erased.
outbox_discards = Table(
    "outbox_discards",
    metadata,
    Column("id", Uuid, nullable=False),
    Column("type", Text, nullable=False),
    Column("aggregatetype", Text, nullable=False),
    Column("aggregateid", Text),
    Column("topic", Text),
    Column("created_at", _Time, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    PrimaryKeyConstraint("id", "at"),
)

# The terminal outcome of an event for a group (design section 7).
processed_events = Table(
    "processed_events",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("source", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("redrive_no", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    # of a generation that was not read then: the event had no effects besides its tables
    Column("silent", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("group_name", "generation", "source", "event_id", "redrive_no"),
)
Index(
    "ix_processed_events_not_applied",
    processed_events.c.group_name,
    processed_events.c.generation,
    postgresql_where=processed_events.c.outcome.in_(["failed", "dead-lettered"]),
)

# Where a consumer group began in each partition: the only proof that it is not new there (design section 6).
# `committed_at` is set once Kafka has held a committed offset; none there later means that it has expired.
group_starts = Table(
    "group_starts",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    Column("committed_at", _Time),
    Column("stay", Text),
    PrimaryKeyConstraint("group_name", "topic", "partition"),
)

# What a projection has been made, one schema of PostgreSQL a generation, and which one is read: the pointer. Whoever
# moves it raises `fence`. Until `frozen_until` the generation that is read changes nothing. `read_at` is when one was
# first read; one that never was is still being made. One that was dropped keeps its row, and its outcomes: they tell
# which effects there have been. A generation's own tables are its declaration's, not described here.
group_generations = Table(
    "group_generations",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("created_at", _Time, nullable=False, server_default=_NOW),
    Column("read_at", _Time),
    Column("dropped_at", _Time),
    Column("name", Text),
    Column("until", _Time),
    Column("filled_at", _Time),
    Column("made_with", JSONB),  # what its tables were made for, where settings decide that
    PrimaryKeyConstraint("group_name", "generation"),
    Index("uq_group_generations_name", "group_name", "name", unique=True, postgresql_where=text("dropped_at IS NULL")),
)
group_pointers = Table(
    "group_pointers",
    metadata,
    Column("group_name", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False, server_default=text("1")),
    Column("moved_at", _Time, nullable=False, server_default=_NOW),
    Column("frozen_until", _Time),
    ForeignKeyConstraint(
        ["group_name", "generation"],
        ["group_generations.group_name", "group_generations.generation"],
        name="fk_group_pointers_generation",
    ),
)

# What a generation would have done besides its tables, had it been read: the end of the group's step of a run,
# and the rows of the outbox, in their order. It is done when the generation is read, unless another one has done it.
withheld_effects = Table(
    "withheld_effects",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("source", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("outcome", Text),
    Column("run_id", Uuid),
    Column("reason", Text),
    Column("detail", Text),
    Column("warning", Text),
    Column("correlation_id", Text),
    Column("causation_id", Text),
    Column("outbox_id", Uuid),
    Column("aggregatetype", Text),
    Column("aggregateid", Text),
    Column("type", Text),
    Column("payload", LargeBinary),
    Column("topic", Text),
    Column("headers", JSONB),
    PrimaryKeyConstraint("group_name", "generation", "number"),
    Index("ix_withheld_effects_event", "group_name", "generation", "source", "event_id"),
)

# The audit of switches: who had which generation read, when, why, and where the one before it was then.
group_switches = Table(
    "group_switches",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("group_name", Text, nullable=False),
    Column("from_generation", Integer, nullable=False),
    Column("to_generation", Integer, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("accepted", BigInteger, nullable=False),
    Column("positions", JSONB, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
)

# How far a generation of a projection has read, written in the transactions of its rows. Updated all the time: room is
# left in each page, so that no index is touched.
group_positions = Table(
    "group_positions",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    PrimaryKeyConstraint("group_name", "generation", "topic", "partition"),
    postgresql_with={"fillfactor": 40},
)

# The ledger of dead letters: what the dead-letter topics say, a row for each of their records. `place` is the offset
# there, `redrive_no` and what is before it are the identity under which the event's outcome is in processed_events.
# Made of the topics alone: it can be emptied, with its positions, and read again from offset zero.
dead_letters = Table(
    "dead_letters",
    metadata,
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("failed_at", _Time, nullable=False),
    Column("source", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("redrive_no", Integer, nullable=False),
    Column("event_type", Text),
    Column("tenant_id", Text),
    Column("run_id", Uuid),
    Column("key", Text),
    Column("failure", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("origin_topic_id", Text, nullable=False),
    Column("origin_topic", Text, nullable=False),
    Column("origin_partition", Integer, nullable=False),
    Column("origin_offset", BigInteger, nullable=False),
    PrimaryKeyConstraint("topic_id", "partition", "place"),
    Index("ix_dead_letters_failed_at", "failed_at"),
    Index("ix_dead_letters_group_name_event_id", "group_name", "event_id"),
    Index("ix_dead_letters_again", "group_name", "event_id", postgresql_where=text("redrive_no > 0")),
    Index("ix_dead_letters_key", "key"),  # a hash index takes quadratic time for many dead letters of one key
    Index(
        "ix_dead_letters_group_name_fingerprint",
        "group_name",
        "fingerprint",
        postgresql_ops={"fingerprint": "text_pattern_ops"},
    ),
)

# How far each dead-letter topic is in the ledger, written in the transaction of its rows. By the topic's id: one that
# was deleted and made again is another, read from its beginning.
dead_letter_positions = Table(
    "dead_letter_positions",
    metadata,
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("topic", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    PrimaryKeyConstraint("topic_id", "partition"),
)

# The audit of operators: who did what to dead letters, when, and why. Never emptied: with the topics it is what the
# statuses of the ledger follow from. `chosen` tells the filter; `ended` is `done` or why it was not.
dead_letter_actions = Table(
    "dead_letter_actions",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("chosen", Text, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    Column("ended_at", _Time),
    Column("ended", Text),
    CheckConstraint("kind IN ('redrive', 'discard', 'edit')", name="kind"),
)

# What an action decided of a dead letter: at most one decision each. It holds from the start of the action, so that two
# operators cannot take the same one, and is carried out at `done_at`. `number` is the order of sending.
dead_letter_decisions = Table(
    "dead_letter_decisions",
    metadata,
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column(
        "action_id",
        Uuid,
        ForeignKey("dead_letter_actions.id", name="fk_dead_letter_decisions_action_id"),
        nullable=False,
    ),
    Column("number", Integer, nullable=False),
    Column("done_at", _Time),
    PrimaryKeyConstraint("topic_id", "partition", "place"),
    Index("ix_dead_letter_decisions_action_id_number", "action_id", "number"),
)

# Payloads that operators have edited; the newest of a dead letter is what a redrive sends.
dead_letter_edits = Table(
    "dead_letter_edits",
    metadata,
    Column(
        "action_id", Uuid, ForeignKey("dead_letter_actions.id", name="fk_dead_letter_edits_action_id"), primary_key=True
    ),
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("original", LargeBinary),
    Column("edited", LargeBinary, nullable=False),
    Index("ix_dead_letter_edits_topic_id_partition_place", "topic_id", "partition", "place"),
)

# The audit of replays: who let a group read what once more, when, why; `asked` are the options, `places` the offsets,
# `generation` is the one that was opened for it with --force.
replays = Table(
    "replays",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("group_name", Text, nullable=False),
    Column("way", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("asked", Text, nullable=False),
    Column("places", Text, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    Column("ended_at", _Time),
    Column("ended", Text),
    Column("generation", Integer),
    CheckConstraint("way IN ('offsets', 'live', 'job')", name="way"),
)

# Parts of the log that a group was forced to handle again: the outcomes of their events are those of this generation.
# Of the last of several; of generation 1 elsewhere. Groups that are no projections.
forced_spans = Table(
    "forced_spans",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("key", LargeBinary),
    Column("event_type", Text),
    PrimaryKeyConstraint("group_name", "generation", "topic_id", "partition"),
    ForeignKeyConstraint(
        ["group_name", "generation"],
        ["group_generations.group_name", "group_generations.generation"],
        name="fk_forced_spans_generation",
    ),
)

# The audit of operators who erase: whose documents, who, why. Without a document it means all of a tenant.
erasures = Table(
    "erasures",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("document_id", Uuid),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("documents", BigInteger, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    Column("ended_at", _Time),
    Column("ended", Text),
)

# What all processes know together of a provider that handlers call: breaker, rate, permits, as one value
# (offsetzero.retry.protection). NULL until it is first called.
providers = Table(
    "providers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("state", JSONB),
    Column("changed_at", _Time, nullable=False, server_default=_NOW),
)

# The event that a member works on where another has died: a mark that is found by the next one is a crash.
crash_marks = Table(
    "crash_marks",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("source", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("redrive_no", Integer, nullable=False),
    Column("member", Text, nullable=False),
    Column("crashes", Integer, nullable=False, server_default=text("0")),
    Column("at", _Time, nullable=False, server_default=_NOW),
    PrimaryKeyConstraint("group_name", "generation", "source", "event_id", "redrive_no"),
)

# The dead letters that hold up their keys, in groups that are declared so: until they are redriven or discarded.
holds = Table(
    "holds",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("origin", BigInteger, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("redrive_no", Integer, nullable=False),
    Column("hop", Integer, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    PrimaryKeyConstraint("group_name", "generation", "topic_id", "partition", "origin"),
)

# Vectors of texts of documents, of whatever generation, so that none is paid for twice. No type of pgvector: a database
# without it has this table, too. `hash` is the SHA-256 of the text.
embeddings = Table(
    "embeddings",
    metadata,
    Column("document_id", Uuid, nullable=False),
    Column("model", Text, nullable=False),
    Column("dimensions", Integer, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("vector", ARRAY(REAL), nullable=False),
    PrimaryKeyConstraint("document_id", "model", "dimensions", "hash"),
    Index("ix_embeddings_hash_tenant_id", "hash", "tenant_id"),
)

# The summaries of the summariser. A removed document keeps its row, so that a late upload does not bring it back.
summaries = Table(
    "summaries",
    metadata,
    Column("document_id", Uuid, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("created_at", _Time, nullable=False, server_default=_NOW),
    Column("removed_at", _Time),
    Column("estimated_tokens", Integer),
)

# What a model has answered about parts of documents, so that nobody pays for an answer twice
# (docs/decisions/answers-are-kept-by-event.md). Old ones are deleted (offsetzero.store.chunk_results.prune).
chunk_results = Table(
    "chunk_results",
    metadata,
    Column("source", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("chunk_hash", LargeBinary, nullable=False),
    Column("document_id", Uuid, nullable=False),
    Column("text", Text, nullable=False),
    Column("answered_by", Text, nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("estimated_tokens", Integer, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    PrimaryKeyConstraint("source", "event_id", "model", "chunk_hash"),
    Index("ix_chunk_results_document_id", "document_id"),
    Index("ix_chunk_results_at", "at"),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("event_types", ARRAY(Text), nullable=False),
    Column("created_at", _Time, nullable=False, server_default=_NOW),
    Column("disabled_at", _Time),  # the receiver answered 410: it wants no more; or the tenant has said so
    Column("previous_secret", Text),  # signs too, until `previous_until`
    Column("previous_until", _Time),
    Index("ix_webhooks_tenant_id", "tenant_id"),
)

# One row a subscription, message and generation of the notifier (another one sends all again); a retry of the event
# sends only to those with no `delivered_at`.
webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column(
        "webhook_id",
        Uuid,
        ForeignKey("webhooks.id", ondelete="CASCADE", name="fk_webhook_deliveries_webhook_id"),
        nullable=False,
    ),
    Column("message_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("status_code", Integer),
    Column("error", Text),
    Column("attempted_at", _Time, nullable=False, server_default=_NOW),
    Column("delivered_at", _Time),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("webhook_id", "message_id", "generation"),
    Index("ix_webhook_deliveries_webhook_id_attempted_at", "webhook_id", "attempted_at"),
)

# The log of attempts, for tenants. Ids are UUIDs of version 7, and with them in the order of time.
webhook_attempts = Table(
    "webhook_attempts",
    metadata,
    Column(
        "webhook_id",
        Uuid,
        ForeignKey("webhooks.id", ondelete="CASCADE", name="fk_webhook_attempts_webhook_id"),
        nullable=False,
    ),
    Column("id", Uuid, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    Column("duration_ms", Integer, nullable=False),
    Column("delivered", Boolean, nullable=False),
    Column("status_code", Integer),
    Column("error", Text),
    PrimaryKeyConstraint("webhook_id", "id"),
)

# What is to be done again and again. A schedule of no tenant is one of operators, and means all tenants. Fire times up
# to `done_until` are decided; at `next_at` one looks again, null when it never fires any more. `error` is why it could
# not be done when it was last tried.
schedules = Table(
    "schedules",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Text),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("cron", Text, nullable=False),
    Column("zone", Text, nullable=False),
    Column("catch_up", Text, nullable=False),
    Column("event_type", Text),  # of the kind `event`, as the next two
    Column("event_key", Text),
    Column("payload", JSONB),
    Column("created_at", _Time, nullable=False, server_default=_NOW),
    Column("paused_at", _Time),
    Column("done_until", _Time, nullable=False),
    Column("next_at", _Time),
    Column("error", Text),
    CheckConstraint("kind IN ('reindex', 'report', 'event')", name="kind"),
    CheckConstraint("catch_up IN ('once', 'skip', 'all')", name="catch_up"),
    CheckConstraint("(kind = 'event') = (payload IS NOT NULL AND event_type IS NOT NULL)", name="event"),
    Index("ix_schedules_next_at", "next_at", postgresql_where=text("paused_at IS NULL")),
    Index("ux_schedules_tenant_id_name", "tenant_id", "name", unique=True, postgresql_nulls_not_distinct=True),
)

# Each fire time that was acted upon: the row is in the transaction of what was done, and there is one. The id is that
# of the event, and follows from schedule and fire time. A re-index goes on until `ended_at`, after `last_document`.
schedule_fires = Table(
    "schedule_fires",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column(
        "schedule_id",
        Uuid,
        ForeignKey("schedules.id", ondelete="CASCADE", name="fk_schedule_fires_schedule_id"),
        nullable=False,
    ),
    Column("fire_at", _Time, nullable=False),
    Column("by_hand", Text),  # who had it run now, at no fire time of the schedule
    Column("missed_since", _Time),  # the first of the fire times that it stands for, and that had none of their own
    Column("fired_at", _Time, nullable=False, server_default=text("clock_timestamp()")),
    Column("ended_at", _Time),
    Column("documents", BigInteger),
    Column("last_document", Uuid),
    Index("ux_schedule_fires_schedule_id_fire_at", "schedule_id", "fire_at", unique=True),
    Index("ix_schedule_fires_under_way", "fire_at", postgresql_where=text("ended_at IS NULL")),
)

# The audit of schedules: who did what to which, when. It stays when the schedule is removed.
schedule_actions = Table(
    "schedule_actions",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("schedule_id", Uuid, nullable=False),
    Column("tenant_id", Text),
    Column("name", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("at", _Time, nullable=False, server_default=_NOW),
    CheckConstraint("action IN ('added', 'paused', 'resumed', 'run', 'removed')", name="action"),
    Index("ix_schedule_actions_schedule_id", "schedule_id", "id"),
)

# What the kind `report` has counted of each tenant: the documents that it had then, and the runs that were begun after
# `since` and until `until`, as they were when the report was made, with the tokens that they had used.
reports = Table(
    "reports",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", Uuid, nullable=False),  # of the fire
    Column("since", _Time, nullable=False),
    Column("until", _Time, nullable=False),
    Column("made_at", _Time, nullable=False, server_default=text("clock_timestamp()")),
    Column("documents", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("queued", BigInteger, nullable=False),
    Column("running", BigInteger, nullable=False),
    Column("succeeded", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("cancelled", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "id"),
)
