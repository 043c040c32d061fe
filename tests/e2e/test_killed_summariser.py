"""The summariser is killed in the middle of 300 pages: its provider is asked again for nothing that it has answered."""

import json
import threading
from collections import Counter

import pdfs
import pytest
from e2e.conftest import Pipeline
from e2e.test_correctness import query, step
from local_http import Received, Reply, serve

from support import wait_until

PAGES = 300
ANSWERED = 12
AT_ONCE = 4


class Model:
    """Answers so many questions, then holds what comes until it is let go on; counts what it was asked."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.held: list[str] = []
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def answer(self, received: Received) -> Reply:
        text = json.loads(received.body)["messages"][1]["content"]
        with self._lock:
            self.calls[text] += 1
            waits = self.calls.total() > ANSWERED and not self.go_on.is_set()
            if waits:
                self.held.append(text)
        if waits:
            self.go_on.wait(120)
        usage = {"prompt_tokens": 7, "completion_tokens": 1}
        said = {"choices": [{"message": {"content": "Budgets."}}], "usage": usage}
        return Reply(200, json.dumps(said).encode())


@pytest.mark.timeout(240)
def test_kill_9_in_the_middle_of_300_pages_pays_for_no_answer_twice(pipeline: Pipeline) -> None:
    model = Model()
    text = "Every page of this long report says the same about budgets. " * 40
    data = pdfs.pdf(*[f"Page {number}. {text}" for number in range(PAGES)])
    pipeline.start_intake()
    with serve(model.answer) as server:
        env = {"OFFSETZERO_LLM__BASE_URL": f"{server.url}/v1", "OFFSETZERO_LLM__PARTS_AT_ONCE": str(AT_ONCE)}
        killed = pipeline.start("groups", "run", "summariser", **env)
        run_id = pipeline.upload("report.pdf", data, "application/pdf")["run_id"]

        def is_in_the_middle() -> bool:
            kept = query(pipeline, "SELECT count(*) FROM chunk_results")[0][0]
            return len(model.held) == AT_ONCE and kept == ANSWERED

        wait_until(is_in_the_middle, 90, what="answers that are kept, and calls under way")
        seen = step(pipeline.run(run_id), "summariser")
        assert (seen["status"], seen["parts_done"]) == ("running", ANSWERED)
        assert seen["parts"] > 2 * ANSWERED
        killed.kill()
        model.go_on.set()
        pipeline.start("groups", "run", "summariser", **env)
        ended = wait_until(
            lambda: found if (found := step(pipeline.run(run_id), "summariser"))["finished_at"] else None,
            120,
            what="the end of the step",
        )
    assert ended is not None
    assert ended["status"] == "succeeded"
    assert {text for text, calls in model.calls.items() if calls > 1} == set(model.held)
    assert model.calls.total() == len(model.calls) + AT_ONCE
    assert len(model.calls) == ended["parts"] + 1, "each part, and once what was answered"
    assert query(pipeline, "SELECT count(*) FROM chunk_results") == [(len(model.calls),)]
    assert (ended["input_tokens"], ended["output_tokens"]) == (7 * len(model.calls), len(model.calls))
