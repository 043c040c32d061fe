"""What the demo does through HTTP, and what it checks: three documents from upload to search and webhook."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from offsetzero.cli.receiver import Received, Receiver
from offsetzero.errors import OffsetzeroError
from offsetzero.settings import Settings

if TYPE_CHECKING:
    import httpx

    from offsetzero.retry.dead_letters import DeadLetter

DOCUMENTS = ("policy.pdf", "corrupt.pdf", "handbook.pdf")
READABLE = ("policy.pdf", "handbook.pdf")
READERS = ("indexer", "summariser")
GROUPS = (*READERS, "notifier")
QUERY = "dead letters by reason"
_DEADLINE = 90.0  # seconds for all runs and webhooks
_ENDED = {"succeeded", "failed", "cancelled"}


@dataclass(slots=True)
class Outcome:
    """All that the demo saw."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By document name: the run as GET /runs shows it."""
    dead_letters: "list[DeadLetter]" = field(default_factory=list)
    hits: list[dict[str, Any]] = field(default_factory=list)
    summaries: dict[str, str] = field(default_factory=dict)
    webhooks: list[Received] = field(default_factory=list)
    refused_webhooks: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def checks(self) -> list[tuple[str, bool]]:
        """What must have happened, and whether it did."""
        statuses = {name: run["status"] for name, run in self.runs.items()}
        corrupt = self.runs.get("corrupt.pdf", {}).get("run_id")
        of_corrupt = sorted(letter.group for letter in self.dead_letters if _run_of(letter) == corrupt)
        first = all(letter.hop.attempt == 1 and letter.reason for letter in self.dead_letters)
        told = sorted((item.event_type, str(item.data.get("run_id"))) for item in self.webhooks)
        ends = sorted((f"run.{run['status']}", str(run["run_id"])) for run in self.runs.values())
        hit = next((hit for hit in self.hits if hit["name"] == "handbook.pdf"), None)
        return [
            (
                "two runs succeeded, one failed",
                statuses == {"policy.pdf": "succeeded", "corrupt.pdf": "failed", "handbook.pdf": "succeeded"},
            ),
            (
                "corrupt.pdf: one dead letter in each group that reads it, at its first failure, with the reason",
                of_corrupt == sorted(READERS) and len(self.dead_letters) == len(READERS) and first,
            ),
            ("search finds handbook.pdf, with the words marked", hit is not None and "<mark>" in hit["snippet"]),
            ("both readable documents have a summary", all(self.summaries.get(name) for name in READABLE)),
            (
                "one webhook for each run, every signature verified",
                told == ends and len(ends) == len(DOCUMENTS) and not self.refused_webhooks,
            ),
        ]


class Scenario:
    """Uploads the example documents and follows them.

    Args:
        api_url: where the API answers.
        key: an API key.
        folder: where the example documents are.
        receiver: a running webhook receiver.
        settings: reach Kafka, for the dead letters.
    """

    def __init__(self, api_url: str, key: str, folder: Path, receiver: Receiver, settings: Settings) -> None:
        self.outcome = Outcome()
        self._api_url = api_url
        self._key = key
        self._folder = folder
        self._receiver = receiver
        self._settings = settings
        self._put: list[str] = []

    def run(self, changed: Callable[[], None], check: Callable[[], None]) -> Outcome:
        """Do all of it.

        Args:
            changed: called when `outcome.runs` may have changed.
            check: called while it waits; it may raise to end the demo.

        Raises:
            OffsetzeroError: the API answered something unexpected, or not everything ended in time.
        """
        started = time.monotonic()
        with self._client() as client:
            hook = _expect(client.post("/webhooks", json={"url": self._receiver.url}), 201)
            self._put.append(f"/webhooks/{hook['id']}")
            self._receiver.secret = hook["secret"]
            names = self._upload(client)
            self._follow(client, names, changed, check)
            self.outcome.seconds = time.monotonic() - started
            self._collect(client, names)
        return self.outcome

    def take_back(self) -> None:
        """Delete the documents and the webhook, in a pipeline that goes on."""
        import httpx

        with self._client() as client:
            while self._put:
                with contextlib.suppress(httpx.HTTPError):  # what failed before is the error to be seen
                    client.delete(self._put.pop())

    def _client(self) -> "httpx.Client":
        import httpx

        headers = {"Authorization": f"Bearer {self._key}"}
        return httpx.Client(base_url=self._api_url, headers=headers, timeout=20, trust_env=False)

    def _upload(self, client: "httpx.Client") -> dict[str, str]:
        """The document id of each name."""
        ids = {}
        for name in DOCUMENTS:
            file = (name, (self._folder / name).read_bytes(), "application/pdf")
            ids[name] = _expect(client.post("/documents", files={"file": file}), 202)["document_id"]
            self._put.append(f"/documents/{ids[name]}")
        return ids

    def _follow(
        self,
        client: "httpx.Client",
        ids: dict[str, str],
        changed: Callable[[], None],
        check: Callable[[], None],
    ) -> None:
        names = {document: name for name, document in ids.items()}
        deadline = time.monotonic() + _DEADLINE
        while True:
            runs = _expect(client.get("/runs"), 200)["runs"]
            found = {names[run["document_id"]]: run for run in runs if run["document_id"] in names}
            self.outcome.runs = {name: found[name] for name in DOCUMENTS if name in found}
            changed()
            ended = [run for run in found.values() if run["status"] in _ENDED]
            if len(ended) == len(DOCUMENTS) and len(self._receiver.received) >= len(DOCUMENTS):
                return
            if time.monotonic() > deadline:
                states = ", ".join(f"{name}: {run['status']}" for name, run in found.items())
                raise OffsetzeroError(
                    f"not everything ended within {_DEADLINE:.0f} s ({states}; "
                    f"{len(self._receiver.received)} webhooks of {len(DOCUMENTS)})"
                )
            check()
            time.sleep(0.15)

    def _collect(self, client: "httpx.Client", ids: dict[str, str]) -> None:
        from offsetzero.retry import dead_letters

        mine = {str(run["run_id"]) for run in self.outcome.runs.values()}
        for group in READERS:
            found = dead_letters.read(self._settings, group)
            self.outcome.dead_letters += [letter for letter in found if _run_of(letter) in mine]
        self.outcome.hits = _expect(client.get("/search", params={"q": QUERY}), 200)["hits"]
        for name in READABLE:
            self.outcome.summaries[name] = _expect(client.get(f"/documents/{ids[name]}"), 200)["summary"] or ""
        self.outcome.webhooks = list(self._receiver.received)
        self.outcome.refused_webhooks = list(self._receiver.refused)


def _expect(response: "httpx.Response", status: int) -> Any:
    if response.status_code != status:
        request = response.request
        raise OffsetzeroError(
            f"{request.method} {request.url} answered {response.status_code} instead of {status}: {response.text[:500]}"
        )
    return response.json()


def _run_of(letter: "DeadLetter") -> str | None:
    return str(UUID(str(letter.meta.run_id))) if letter.meta is not None and letter.meta.run_id else None
