"""Text of Word files (DOCX): body, tables, headers and footers by docx2txt; encrypted ones told apart by olefile."""

import io
import zipfile
import zlib
from typing import IO
from xml.etree.ElementTree import ParseError

import docx2txt
import olefile

from offsetzero.consumers.groups.documents.cleaning import clean
from offsetzero.consumers.groups.documents.pages import Extracted, Page, extracted
from offsetzero.retry.failures import Permanent, Poison

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # a compound file: Word before 2007, or any encrypted Office file
_ZIP = b"PK\x03\x04"
_BODY = "word/document.xml"
_READER = "docx2txt"
_UNREADABLE = (zipfile.BadZipFile, zlib.error, ParseError, KeyError, ValueError, EOFError, OSError, RuntimeError)


def read(file: IO[bytes]) -> Extracted:
    """The text of a DOCX file, as one page: the file knows no pages.

    Raises:
        Permanent: `password-needed`, `not-a-docx`.
        Poison: `corrupt`, it starts like a DOCX file and cannot be read.
    """
    start = file.read(len(_OLE))
    file.seek(0)
    if start == _OLE:
        raise _compound(file)
    if not start.startswith(_ZIP):
        raise Permanent("not-a-docx", "the file says it is a DOCX file and is not")
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
        if _BODY not in names:
            raise Permanent("not-a-docx", f"the file is a zip file without {_BODY}: not a DOCX file")
        file.seek(0)
        text = docx2txt.process(file)
    except _UNREADABLE as error:
        raise Poison("corrupt", f"the DOCX file cannot be read: {type(error).__name__}") from error
    return extracted([Page(1, clean([text])[0], _READER)], [])


def _compound(file: IO[bytes]) -> Permanent | Poison:
    """Why a compound file is not read."""
    try:
        with olefile.OleFileIO(io.BytesIO(file.read())) as container:
            if container.exists("EncryptedPackage"):
                return Permanent("password-needed", "the file is encrypted and opens only with a password")
    except (OSError, ValueError, IndexError, RecursionError) as error:
        return Poison("corrupt", f"the compound file cannot be read: {type(error).__name__}")
    return Permanent("not-a-docx", "the file is in Word's format of before 2007: save it as DOCX")
