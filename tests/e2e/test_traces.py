"""One run is followed by its id and its trace through all processes: to the webhook, to a dead letter and back."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pdfs
import pytest
from commands import CommandsHere
from e2e.conftest import Pipeline, Process
from e2e.test_correctness import query
from local_http import LocalHttp, Reply, serve

from offsetzero import tracing
from offsetzero.retry import dead_letters
from offsetzero.topics import retained
from offsetzero.topics.reading import TopicReader
from support import wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
ALLOWED = {"OFFSETZERO_WEBHOOKS__ALLOW_PRIVATE_TARGETS": "true"}
Headers = dict[str, str]


@contextmanager
def model() -> Iterator[LocalHttp]:
    """An endpoint that summarises everything in the same way."""
    said = json.dumps({"choices": [{"message": {"content": "Short."}}], "usage": {}}).encode()
    with serve(lambda _received: Reply(200, said)) as server:
        yield server


def records(pipeline: Pipeline, topic: str, run_id: str) -> list[Headers]:
    """The headers of a topic's records that are of a run, in their order."""
    settings, found = pipeline.settings, []
    with TopicReader(settings) as reader:
        spans = {number: (one.low, one.end) for number, one in retained.bounds(settings, topic).items()}
        for batch in reader.read(topic, spans):
            found += [{name: (value or b"").decode() for name, value in one.headers} for one in batch]
    return [headers for headers in found if headers.get("ce_runid") == run_id]


def spans_of(every: list[Headers]) -> list[str]:
    """The span ids of records or calls, all of which are of the trace."""
    spans = [tracing.read(headers.get("traceparent")) for headers in every]
    assert [span.trace_id for span in spans if span is not None] == [TRACE] * len(every)
    return [span.span_id for span in spans if span is not None]


def lines(process: Process, run_id: str) -> list[dict[str, Any]]:
    """What a process says of a run; all of it tells of the trace, too."""
    found = [line for line in process.lines if line.get("run_id") == run_id]
    assert {line["trace_id"] for line in found} <= {TRACE}
    return found


def said(process: Process, run_id: str, event: str) -> dict[str, Any]:
    """The line with an event, once it is there."""
    wait_until(lambda: event in [line["event"] for line in lines(process, run_id)], 60, what=f"{event!r} is said")
    return next(line for line in lines(process, run_id) if line["event"] == event)


@pytest.mark.timeout(300)
def test_a_run_is_followed_from_its_request_to_its_last_effect(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.start_intake(OFFSETZERO_LOG_LEVEL="DEBUG", **ALLOWED)
    api, relay = pipeline.processes
    with model() as llm, serve(lambda _received: Reply(204)) as receiver:
        group = {
            name: pipeline.start("groups", "run", name, OFFSETZERO_LLM__BASE_URL=llm.url + "/v1", **ALLOWED)
            for name in ("indexer", "summariser", "notifier", "ledger")
        }
        hook = pipeline.client.post("/webhooks", json={"url": receiver.url, "event_types": ["run.succeeded"]})
        assert hook.status_code == 201, hook.text
        pipeline.client.headers["traceparent"] = PARENT
        run_id = pipeline.upload("good.txt", b"A text that can be read.")["run_id"]
        bad = pipeline.upload("corrupt.pdf", pdfs.corrupt(), "application/pdf")
        assert pipeline.await_run(run_id)["status"] == "succeeded"
        wait_until(lambda: len(receiver.received) == 1, 60, what="the webhook")

        # The run that goes well.
        assert said(api, run_id, "request")["status"] == 202
        assert said(relay, run_id, "outbox row published")["type"] == "document.uploaded"
        handled = [
            said(group[name], run_id, event)["span_id"]
            for name, event in (
                ("indexer", "indexed"),
                ("summariser", "summarised"),
                ("notifier", "webhook delivered"),
            )
        ]
        (uploaded,), (succeeded,) = (records(pipeline, topic, run_id) for topic in ("documents", "runs"))
        outgoing = [one.headers for one in (*llm.received, *receiver.received) if one.headers["x-run-id"] == run_id]
        assert len(outgoing) == 2
        by_api, by_last, to_model, to_receiver = spans_of([uploaded, succeeded, *map(dict, outgoing)])
        assert len({"00f067aa0ba902b7", by_api, *handled}) == 5, "each process has a span of its own"
        assert by_last in handled[:2], "the step that ended last has said so"
        assert [to_model, to_receiver] == handled[1:]
        assert json.loads(receiver.received[0].body)["data"]["run_id"] == run_id
        assert uploaded["ce_traceparent"] == uploaded["traceparent"]
        told = pipeline.client.get(f"/runs/{run_id}/events").text
        assert run_id in told
        wait_until(lambda: "/runs/{run_id}/events" in [one.get("route") for one in api.lines], what="the stream's line")

        # The run that fails.
        lost = bad["run_id"]
        wait_until(lambda: query(pipeline, "SELECT 1 FROM dead_letters WHERE run_id = %s", lost), 60, what="the ledger")
        failed = said(group["indexer"], lost, "handling failed")
        (letter,) = list(dead_letters.read(pipeline.settings, "indexer"))
        carried = {name: (value or b"").decode() for name, value in letter.headers}
        assert carried["ce_runid"] == lost
        assert spans_of([carried]) == [failed["span_id"]], "a dead letter names the handling that failed"

        # Somebody makes its file whole, and sends it back.
        place = query(pipeline, "SELECT uri FROM documents WHERE id = %s", bad["document_id"])[0][0]
        Path(urlparse(place).path).write_bytes(pdfs.pdf("It can be read now."))
        offsetzero = CommandsHere(pipeline.settings, monkeypatch)
        offsetzero("dlq", "redrive", "indexer", "--all", "--why", "it is whole again")
        again = said(group["indexer"], lost, "indexed")
        (redriven,) = records(pipeline, "indexer.redrive", lost)
        hops = spans_of([carried, redriven])
        assert len({*hops, again["span_id"]}) == 3, "a fresh span for each hop"
        assert redriven["ce_traceparent"] == carried["ce_traceparent"], "the first of all stays with the event"
