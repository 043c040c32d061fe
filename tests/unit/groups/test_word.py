"""Each kind of Word file has its own outcome (design section 4a)."""

import io

import office
import olefile
import pytest

from offsetzero.consumers.groups.documents import pages, word
from offsetzero.retry.failures import Failure, Permanent, Poison


def test_tables_headers_and_footers_are_read_too() -> None:
    """python-docx's paragraphs drop all three."""
    data = office.docx("First.", "Grüße – “naïve” €5", cell="In a table", header="On top", footer="Below")
    found = word.read(io.BytesIO(data))
    assert [(page.number, page.reader) for page in found.pages] == [(1, "docx2txt")]
    assert found.text.split("\n\n") == ["On top", "First.", "Grüße – “naïve” €5", "In a table", "Below"]
    assert found.warnings == []


def test_no_text_is_a_warning_not_a_failure() -> None:
    assert word.read(io.BytesIO(office.docx())).warnings == [pages.NO_TEXT]


def test_the_compound_files_of_these_tests_are_such() -> None:
    with olefile.OleFileIO(office.compound("EncryptedPackage")) as container:
        assert container.listdir() == [["EncryptedPackage"]]
        assert len(container.openstream("EncryptedPackage").read()) == 4096


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (office.compound("EncryptedPackage"), Permanent, "password-needed"),
        (office.compound("WordDocument"), Permanent, "not-a-docx"),
        (office.compound("EncryptedPackage")[:600], Poison, "corrupt"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\xff" * 3000, Poison, "corrupt"),
        (b"a text", Permanent, "not-a-docx"),
        (b"%PDF-1.7", Permanent, "not-a-docx"),
        (b"", Permanent, "not-a-docx"),
        (office.zip_of(a_txt=b"a zip file of something else"), Permanent, "not-a-docx"),
        (office.docx("cut")[:-60], Poison, "corrupt"),
        (b"PK\x03\x04" + b"\xff" * 3000, Poison, "corrupt"),
        (office.zip_of(word__document_xml=b"<not xml"), Poison, "corrupt"),
        (office.docx("x").replace(b"word/document.xml", b"word/document.xmk", 1), Poison, "corrupt"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, kind: type[Failure], reason: str) -> None:
    """tika protected_normal_case.docx: needs a password, which is no corruption."""
    with pytest.raises(kind) as caught:
        word.read(io.BytesIO(data))
    assert caught.value.reason == reason
    assert caught.value.detail


def test_entities_do_not_grow_without_end() -> None:
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(12))
    bomb = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "ha">{entities}]><x>&e12;</x>'
    with pytest.raises(Poison):
        word.read(io.BytesIO(office.zip_of(word__document_xml=bomb.encode())))
