"""PDF files that each show one thing, made on the spot."""

import importlib.util
import io
from pathlib import Path
from types import ModuleType

from pypdf import PdfReader, PdfWriter


def _load() -> ModuleType:
    path = Path(__file__).parent.parent / "examples" / "documents" / "make.py"
    spec = importlib.util.spec_from_file_location("example_documents", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = _load()


def pdf(*pages: str) -> bytes:
    """A PDF with these pages of text."""
    made: bytes = make.pdf(list(pages))
    return made


def corrupt() -> bytes:
    """It starts like a PDF, and no library can open it."""
    made: bytes = make.corrupt_pdf()
    return made


def encrypted(password: str, *pages: str) -> bytes:
    """A PDF that needs a password; with an empty one any reader opens it."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(*pages))))
    writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def hyphenated(first: str, second: str) -> bytes:
    """A PDF where a line ends in `first-` and the next begins with `second`."""
    return _written(f"(We will {first}-) Tj T* ({second} this program.) Tj")


def right_to_left(word: str, *, after: str) -> bytes:
    """A PDF as browsers print Arabic: the first glyph stands for the whole word, in the order of reading."""
    text = "".join(f"{ord(letter):04x}" for letter in word)
    cmap = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /T def /CMapType 2 def\n"
        "1 begincodespacerange <00> <ff> endcodespacerange\n"
        f"1 beginbfchar\n<61> <{text}>\nendbfchar\nendcmap end end"
    )
    return _written(f"/F2 11 Tf (a) Tj /F1 11 Tf ( {after}) Tj", cmap)


def without_text() -> bytes:
    """A page with a drawing and no letter, as a scan is."""
    return _written("ET 100 100 200 200 re f BT")


def _written(operators: str, cmap: str = "") -> bytes:
    content = f"BT /F1 11 Tf 15 TL 64 700 Td {operators} ET"
    made: bytes = make._file(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [5 0 R] /Count 1 >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding /ToUnicode 7 0 R >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] "
            b"/Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> /Contents 6 0 R >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream".encode("latin-1"),
            f"<< /Length {len(cmap)} >>\nstream\n{cmap}\nendstream".encode("latin-1"),
            b"<< >>",
        ]
    )
    return made
