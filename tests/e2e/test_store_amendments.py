"""What operators have decided about events, as members keep it in memory."""

import random

import psycopg
from kafka import letters

from offsetzero.generation import Generation
from offsetzero.store import amendments, generations
from offsetzero.store.script import run


def test_a_discard_of_any_generation_is_found_by_source_and_id_and_no_other_event_is(database_url: str) -> None:
    """The database makes the digests, and a member looks for them: both mean the same text."""
    dice = random.Random(7)
    said = [("/quelle/ä€😀", f"id {dice.random()}") for _ in range(300)]
    with psycopg.connect(database_url, autocommit=True) as database:
        run(database, generations.add(Generation("names", 7)))
        for number, (group, place) in enumerate([("names", 0), ("names.g7", 1), ("other", 2), ("xnames.g7", 3)]):
            some = said[number * 60 : (number + 1) * 60]
            database.execute(
                "INSERT INTO dead_letters (topic_id, partition, place, group_name, failed_at, source, event_id,"
                " redrive_no, failure, reason, detail, fingerprint, attempt, origin_topic_id, origin_topic,"
                " origin_partition, origin_offset)"
                " SELECT 't', %s, n, %s, now(), s, e, 0, 'poison', '', '', '', 1, 's', 'documents', 0, 0"
                " FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS x (s, e, n)",
                (place, group, [one[0] for one in some], [one[1] for one in some]),
            )
            letters.discard_all(database, group)
        found = run(database, amendments.of_group("names"))
        assert found
        assert [one for one in said if found.has_discarded(*one)] == said[:120]
        assert not found.has_discarded("/quelle/ä€😀i", said[0][1][1:]), "the same text, parted elsewhere"
        assert not run(database, amendments.of_group("nobody"))
