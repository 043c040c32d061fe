"""Office files that each show one thing, made on the spot."""

import io
import struct
import zipfile
from xml.sax.saxutils import escape

_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SECTOR = 512
_END, _FAT, _FREE = 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFF


def _paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def _part(root: str, content: str) -> str:
    return f'<?xml version="1.0"?><w:{root} xmlns:w="{_NAMESPACE}">{content}</w:{root}>'


def docx(*paragraphs: str, cell: str = "", header: str = "", footer: str = "") -> bytes:
    """A Word file with these paragraphs, and a table of one cell, a header and a footer if they are given."""
    table = f"<w:tbl><w:tr><w:tc>{_paragraph(cell)}</w:tc></w:tr></w:tbl>" if cell else ""
    body = "".join(map(_paragraph, paragraphs))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", _part("document", f"<w:body>{body}{table}</w:body>"))
        if header:
            archive.writestr("word/header1.xml", _part("hdr", _paragraph(header)))
        if footer:
            archive.writestr("word/footer1.xml", _part("ftr", _paragraph(footer)))
    return file.getvalue()


def zip_of(**parts: bytes) -> bytes:
    """A zip file; two underscores in a name stand for a slash, one for a dot."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return file.getvalue()


def compound(stream: str) -> bytes:
    """A compound file (OLE, MS-CFB) with one stream of that name: `EncryptedPackage` is a file with a password.

    Four sectors: the table of sectors, the directory, and the stream, too long for the small ones.
    """
    content = bytes(8 * _SECTOR)
    count = len(content) // _SECTOR
    header = struct.pack(
        "<8s16sHHHHHHLLLLLLLLLL",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        bytes(16),
        0x3E,
        3,
        0xFFFE,
        9,
        6,
        0,
        0,
        0,
        1,
        1,
        0,
        4096,
        _END,
        0,
        _END,
        0,
    )
    header += struct.pack("<109L", 0, *[_FREE] * 108)
    chain = [_FAT, _END, *range(3, 2 + count), _END]
    table = struct.pack("<128L", *chain, *[_FREE] * (128 - len(chain)))
    directory = _entry("Root Entry", 5, child=1, start=_END) + _entry(stream, 2, start=2, size=len(content))
    return header + table + directory.ljust(_SECTOR, b"\0") + content


def _entry(name: str, kind: int, *, child: int = _FREE, start: int, size: int = 0) -> bytes:
    encoded = (name + "\0").encode("utf-16-le")
    return struct.pack(
        "<64sHBBLLL16sLQQLQ", encoded, len(encoded), kind, 1, _FREE, _FREE, child, bytes(16), 0, 0, 0, start, size
    )
