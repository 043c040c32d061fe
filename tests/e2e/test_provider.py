"""The summariser's endpoint refuses its key: what users and operators see of it, and how it ends."""

import pytest
from e2e.conftest import Pipeline
from e2e.test_correctness import metrics, provider, step

from offsetzero.retry import dead_letters
from support import wait_until


@pytest.mark.timeout(240)
def test_a_run_waits_for_the_provider_and_succeeds_when_its_key_is_good_again(pipeline: Pipeline) -> None:
    good: list[bool] = []
    pipeline.start_intake()
    with provider(lambda word, call: (200 if good else 401, {})) as llm:
        env = {"OFFSETZERO_LLM__BASE_URL": llm.url, "OFFSETZERO_PROVIDERS__PROBE_SECONDS": "0.5"}
        group = pipeline.start("groups", "run", "summariser", **env)
        pipeline.start("groups", "run", "indexer")
        uploads = [pipeline.upload(f"{n}.txt", f"word{n} of a document".encode()) for n in range(5)]
        for upload in uploads:
            run_id = upload["run_id"]
            wait_until(lambda run_id=run_id: waits(pipeline.run(run_id)), 90, what="a run that waits")  # type: ignore[misc]
        assert 'offsetzero_provider_refuses{provider="llm"} 1.0' in metrics(group)
        good.append(True)
        for upload in uploads:
            run = pipeline.await_run(upload["run_id"])
            assert run["status"] == "succeeded"
            assert step(run, "summariser")["attempts"] == 1
            assert step(run, "summariser")["reason"] is None
    assert list(dead_letters.read(pipeline.settings, "summariser")) == []
    assert "offsetzero_retries_total{" not in metrics(group)


def waits(run: dict[str, object]) -> bool:
    found = step(run, "summariser")
    return (found["status"], found["reason"]) == ("waiting", "provider") and "llm" in found["detail"]
