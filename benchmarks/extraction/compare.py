"""Readers in a pool of processes against the same readers in threads of this process.

    python benchmarks/extraction/compare.py [--workers 2] [--rounds 5]

Both read the same documents at the same number at once, turn by turn in one run, so that what else the machine does
weighs on both. Printed are documents a second, the best round of each, and their ratio; then what one tiny document
costs, which is what a process of its own costs.
"""

import argparse
import io
import os
import platform
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "examples" / "documents"))

import make  # noqa: E402 - beside the example documents

from offsetzero.consumers.groups.documents import formats  # noqa: E402
from offsetzero.consumers.groups.documents.pages import Extracted  # noqa: E402
from offsetzero.consumers.groups.documents.readers import READERS  # noqa: E402
from offsetzero.consumers.groups.extraction import ReaderPool  # noqa: E402
from offsetzero.settings import DocumentSettings  # noqa: E402

TEXT = "The committee reviews every budget twice a year, and publishes what it finds within a month. " * 25
Read = Callable[[str, bytes], Extracted]


def documents() -> dict[str, tuple[str, list[bytes]]]:
    """Kinds of documents: content type and files, of which no two are the same."""
    html = "<html><head><title>{n}</title></head><body>" + f"<p>{TEXT}</p>" * 10 + "</body></html>"
    return {
        "text, 2 KB": (formats.TEXT.content_type, [f"{n} {TEXT}".encode() for n in range(200)]),
        "HTML, 24 KB": (formats.HTML.content_type, [html.replace("{n}", str(n)).encode() for n in range(200)]),
        "DOCX, 10 paragraphs": (formats.DOCX.content_type, [_docx(n) for n in range(200)]),
        "PDF, 1 page": (formats.PDF.content_type, [make.pdf([f"{n} {TEXT}"]) for n in range(200)]),
        "PDF, 20 pages": (formats.PDF.content_type, [make.pdf([f"{n} {TEXT}"] * 20) for n in range(60)]),
        "PDF, 300 pages": (formats.PDF.content_type, [make.pdf([f"{n} {TEXT}"] * 300) for n in range(6)]),
    }


def _docx(number: int) -> bytes:
    name = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = f"<w:p><w:r><w:t>{number} {TEXT}</w:t></w:r></w:p>" * 10
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{name}"><w:body>{body}</w:body></w:document>')
    return file.getvalue()


def in_process(content_type: str, data: bytes) -> Extracted:
    """The reader in this thread."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return READERS[content_type](file)


def in_pool(pool: ReaderPool) -> Read:
    """The reader in a process of the pool."""

    def read(content_type: str, data: bytes) -> Extracted:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            return pool.read(content_type, file)

    return read


def rate(read: Read, content_type: str, files: list[bytes], at_once: int) -> float:
    """Documents a second."""
    with ThreadPoolExecutor(at_once) as threads:
        started = time.perf_counter()
        for found in threads.map(lambda data: read(content_type, data), files):
            assert found.has_text
        return len(files) / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="documents at once")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    print(f"{arguments.workers} documents at once, best of {arguments.rounds} rounds\n")
    print("| documents | in-process, a second | pool, a second | ratio |")
    print("|---|---:|---:|---:|")
    with ReaderPool(DocumentSettings(workers=arguments.workers)) as pool:
        pooled = in_pool(pool)
        everything = documents()
        for kind, (content_type, files) in everything.items():
            ways: list[tuple[Read, list[float]]] = [(in_process, []), (pooled, [])]
            for _ in range(arguments.rounds):
                for read, found in ways:
                    found.append(rate(read, content_type, files, arguments.workers))
            alone, contained = (max(found) for _, found in ways)
            print(f"| {kind} | {alone:.1f} | {contained:.1f} | {contained / alone:.2f} |", flush=True)
        content_type, files = everything["text, 2 KB"]
        for name, read in (("in-process", in_process), ("pool", pooled)):
            seconds = []
            for data in files:
                started = time.perf_counter()
                read(content_type, data)
                seconds.append(time.perf_counter() - started)
            print(f"\none text of 2 KB alone, {name}: median {statistics.median(seconds) * 1000:.1f} ms", end="")
    print()


if __name__ == "__main__":
    main()
