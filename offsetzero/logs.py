"""Structured logs: one line an event, as JSON or for a terminal, with the context of the record in work.

A program that imports this and sets up neither (a service that publishes, a test) gets our lines as those of any
library: from the standard library's loggers, as plain text. structlog's own default would write all of them to standard
output, and where rich is installed, as it is with us, tracebacks with the local variables of each frame: secrets among
them, and read out of frames that other threads run, which has crashed the interpreter.
"""

import logging
import sys
from contextvars import ContextVar
from typing import Literal, Protocol

import structlog

from offsetzero.tracing import Span

Logger = structlog.stdlib.BoundLogger

RUN_ID = "X-Run-Id"
"""The header that tells other systems of which run a call is."""


class Subject(Protocol):
    """What is being worked on; asked only when a line is logged, or something is sent."""

    @property
    def span(self) -> Span | None:
        """Of which trace it is a part."""
        ...

    def log_fields(self) -> dict[str, object]:
        """What every line about it bears."""
        ...


SUBJECT: ContextVar[Subject | None] = ContextVar("subject", default=None)
"""What this thread or task works on."""


def span() -> Span | None:
    """The span of what this thread or task works on."""
    subject = SUBJECT.get()
    return subject.span if subject is not None else None


def trace_headers() -> dict[str, str]:
    """Headers for calls of other systems, of what this thread or task works on: its trace, and its run."""
    subject = SUBJECT.get()
    if subject is None:
        return {}
    return headers_of(subject.span, subject.log_fields().get("run_id"))


def headers_of(span: Span | None, run_id: object) -> dict[str, str]:
    """Headers for calls of other systems, of a trace and a run, where there are any."""
    return (span.headers() if span is not None else {}) | ({RUN_ID: str(run_id)} if run_id else {})


def configure(*, process: str, form: Literal["auto", "json", "text"] = "auto", level: str = "INFO") -> None:
    """Set up structlog and the standard library's logging for one process.

    Args:
        process: what this process is (`api`, `relay`, `indexer`), on every line.
        form: JSON lines, or text for people; by default text when standard error is a terminal.
        level: the lowest level that is written.
    """
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())

    def name_process(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        line.setdefault("process", process)  # not a context variable: threads do not inherit those
        return line

    def name_subject(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        subject = SUBJECT.get()
        return line if subject is None else {**subject.log_fields(), **line}

    shared: list[structlog.typing.Processor] = [
        name_process,
        structlog.contextvars.merge_contextvars,
        name_subject,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json  # plain: the other formatters print the local variables of each frame, secrets among them
        else structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *([structlog.processors.format_exc_info] if as_json else []),
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("httpx").setLevel("WARNING")
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _as_text(_logger: object, _method: str, line: structlog.typing.EventDict) -> tuple[tuple[str], dict[str, object]]:
    """What the standard library's loggers take: the event with its fields, and the exception apart."""
    exc_info = line.pop("exc_info", None)
    fields = "".join(f" {name}={value!r}" for name, value in line.items() if name != "event")
    return (f"{line['event']}{fields}",), {"exc_info": exc_info}


if not structlog.is_configured():
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _as_text],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def get(name: str) -> Logger:
    """A logger of the given module name."""
    logger: Logger = structlog.stdlib.get_logger(name)
    return logger
