"""The promises of the pipeline, on its real processes: nothing twice, nothing lost, failures where they belong."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from e2e.conftest import Pipeline, Process, Provider

from offsetzero.retry import dead_letters
from support import IS_NIGHT, wait_until, within

DOCUMENTS = 500 if IS_NIGHT else 60


@contextmanager
def provider(answer: Callable[[str, int], tuple[int, dict[str, str]]]) -> Any:
    made = Provider(answer)
    try:
        yield made
    finally:
        made.close()


def query(pipeline: Pipeline, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(pipeline.settings.database_url.get_secret_value()) as connection:
        return connection.execute(statement, parameters).fetchall()


def step(run: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in run["steps"] if item["step"] == name)


@pytest.mark.timeout(900 if IS_NIGHT else 300)
def test_kill_9_in_the_middle_of_many_documents_loses_and_doubles_nothing(pipeline: Pipeline) -> None:
    pipeline.start_intake()

    def indexed() -> int:
        return int(query(pipeline, "SELECT count(DISTINCT document_id) FROM indexer_g1.chunks")[0][0])

    count = 0
    for _ in range(2):
        for number in range(count, count + DOCUMENTS):
            pipeline.upload(f"{number}.txt", f"document number{number} says hello".encode())
        indexer = pipeline.start("groups", "run", "indexer")
        enough, count = count + DOCUMENTS // 10, count + DOCUMENTS
        wait_until(lambda enough=enough: indexed() >= enough, 180, interval=0.01)  # type: ignore[misc]
        indexer.kill()
        assert indexed() < count, "it was killed too late to show anything"
    indexer = pipeline.start("groups", "run", "indexer")
    wait_until(lambda: indexed() == count, 300, what="all documents indexed")
    assert indexer.stop() == 0
    each = query(pipeline, "SELECT document_id, count(*) FROM indexer_g1.chunks GROUP BY 1 HAVING count(*) <> 1")
    assert each == []
    outcomes = query(pipeline, "SELECT outcome, count(*) FROM processed_events WHERE group_name = 'indexer' GROUP BY 1")
    assert outcomes == [("applied", count)]
    assert list(dead_letters.read(pipeline.settings, "indexer")) == []


def test_a_provider_that_fails_one_event_twice_sends_it_through_both_tiers(pipeline: Pipeline) -> None:
    def answer(word: str, call: int) -> tuple[int, dict[str, str]]:
        return (503 if word == "unlucky" and call <= 2 else 200), {}

    pipeline.start_intake()
    with provider(answer) as llm:
        summariser = pipeline.start("groups", "run", "summariser", OFFSETZERO_LLM__BASE_URL=llm.url)
        pipeline.start("groups", "run", "indexer")
        unlucky = pipeline.upload("unlucky.txt", b"unlucky words of a document")
        lucky = [pipeline.upload(f"{n}.txt", f"lucky{n} words".encode()) for n in range(5)]
        for upload in lucky:
            run = pipeline.await_run(upload["run_id"])
            assert run["status"] == "succeeded"
            assert step(run, "summariser")["attempts"] == 1
        run = pipeline.await_run(unlucky["run_id"])
        assert (run["status"], step(run, "summariser")["attempts"]) == ("succeeded", 3)
        first, second, third = llm.calls["unlucky"]
        assert second - first >= pipeline.settings.retry.delays["retry-1m"]
        assert third - second >= pipeline.settings.retry.delays["retry-10m"]
        assert len(llm.calls) == 6
    failures = [line for line in summariser.lines if line["event"] == "handling failed"]
    assert [(line["attempt"], line["reason"], line["group"]) for line in failures] == [
        (1, "provider-503", "summariser"),
        (2, "provider-503", "summariser"),
    ]
    assert all(line["run_id"] == unlucky["run_id"] and line["event_id"] for line in failures)
    assert list(dead_letters.read(pipeline.settings, "summariser")) == []


@pytest.mark.timed
def test_retry_after_of_a_429_is_never_early(pipeline: Pipeline) -> None:
    pipeline.start_intake()
    with provider(lambda word, call: (429, {"Retry-After": "4"}) if call == 1 else (200, {})) as llm:
        pipeline.start("groups", "run", "summariser", OFFSETZERO_LLM__BASE_URL=llm.url)
        pipeline.upload("a.txt", b"throttled words")
        first, second = wait_until(lambda: calls if len(calls := llm.calls["throttled"]) == 2 else None) or []
    assert second - first >= 4.0
    within(4.0 * 1.1 + 1.0, second - first, "it was asked again after")


def test_a_400_fails_the_run_at_once_with_no_dead_letter(pipeline: Pipeline) -> None:
    pipeline.start_intake()
    with provider(lambda word, call: (400, {})) as llm:
        pipeline.start("groups", "run", "summariser", OFFSETZERO_LLM__BASE_URL=llm.url)
        pipeline.start("groups", "run", "indexer")
        run = pipeline.await_run(pipeline.upload("a.txt", b"refused words")["run_id"])
        assert run["status"] == "failed"
        assert step(run, "summariser")["reason"] == "provider-400"
        assert step(run, "indexer")["status"] == "succeeded", "partial results stay readable"
        assert len(llm.calls["refused"]) == 1
    assert list(dead_letters.read(pipeline.settings, "summariser")) == []


METRICS = {
    "api": ["offsetzero_http_request_seconds"],
    "relay": ["offsetzero_outbox_depth"],
    "group": [
        "offsetzero_events_consumed_total",
        "offsetzero_events_handled_total",
        "offsetzero_handler_seconds_bucket",
        "offsetzero_retries_total",
        "offsetzero_dead_letters_total",
        "offsetzero_lag_records",
    ],
}


def test_every_process_serves_metrics_and_ends_cleanly(pipeline: Pipeline) -> None:
    pipeline.start_intake()
    relay = pipeline.processes[1]
    with provider(lambda word, call: (503 if word == "busy" and call == 1 else 200, {})) as llm:
        group = pipeline.start("groups", "run", "summariser", OFFSETZERO_LLM__BASE_URL=llm.url)
        pipeline.upload("busy.txt", b"busy words")
        pipeline.upload("corrupt.pdf", b"%PDF-1.7\nthis is no PDF at all", "application/pdf")

        def shown() -> bool:
            text = metrics(group)
            return all(f"\n{name}" in text for name in METRICS["group"]) and handled(text) == 2

        wait_until(shown, what="all metrics of a group")
        text = metrics(group)
    assert 'offsetzero_retries_total{failure="transient",group="summariser",tier="retry-1m"} 1.0' in text
    assert 'offsetzero_dead_letters_total{failure="poison",group="summariser"} 1.0' in text
    assert all(name in pipeline.client.get("/metrics").text for name in METRICS["api"])
    assert all(name in metrics(relay) for name in METRICS["relay"])
    wait_until(lambda: lag(metrics(group)) == 0, what="lag 0")
    assert [process.stop() for process in pipeline.processes] == [0, 0, 0]


def metrics(process: Process) -> str:
    return httpx.get(process.await_line("metrics served")["url"]).text


def handled(text: str) -> float:
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("offsetzero_events_handled_total{")
    )


def lag(text: str) -> float:
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("offsetzero_lag_records{")
    )
