"""What the tests ask of a broker and a database, wherever they run."""

BROKER = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "4000",  # tests kill members and wait for the others to take over
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "300",
    "log.segment.bytes": str(64 * 1024 * 1024),
    "log.index.size.max.bytes": str(256 * 1024),  # preallocated, for every partition of every test
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "log.cleaner.backoff.ms": "500",  # tests wait for compaction
}
DATABASE = {
    "max_connections": "300",
    "timezone": "UTC",
    "fsync": "off",  # the data are thrown away
    "synchronous_commit": "off",
    "full_page_writes": "off",
}
