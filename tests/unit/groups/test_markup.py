"""HTML and Markdown: what a browser would show, in the right characters, with the title."""

import io

import pytest

from offsetzero.consumers.groups.documents import markup, pages
from offsetzero.retry.failures import Permanent

ARABIC = "في قرية من القرى كان هناك رجل حكيم يعرف كل شيء عن الحياة وكان يعلم الناس كيف يعيشون بسلام"
RUSSIAN = "Все люди рождаются свободными и равными в своем достоинстве и правах"
TEXT = "Grüße – “naïve” €5"


def _html(body: str, charset: str = "", title: str = "A title") -> str:
    meta = f'<meta charset="{charset}">' if charset else ""
    return f"<!DOCTYPE html><html><head>{meta}<title>{title}</title></head><body><p>{body}</p></body></html>"


def _read(data: bytes) -> pages.Extracted:
    return markup.read_html(io.BytesIO(data))


@pytest.mark.parametrize(
    ("text", "declared", "encoding"),
    [
        (TEXT, "utf-8", "utf-8"),
        (TEXT, "", "utf-8"),
        (TEXT, "iso-8859-1", "utf-8"),
        ("Grüße", "iso-8859-1", "utf-8"),
        (TEXT, "windows-1252", "windows-1252"),
        (ARABIC, "utf-8", "cp1256"),
        (ARABIC, "windows-1256", "cp1256"),
        (RUSSIAN, "koi8-r", "koi8-r"),
        (RUSSIAN, "", "cp1251"),
        ("日本国民は、正当に選挙された", "iso-2022-jp", "iso-2022-jp"),
        ("日本国民は、正当に選挙された", "shift_jis", "shift_jis"),
    ],
)
def test_the_bytes_decide_before_the_declaration(text: str, declared: str, encoding: str) -> None:
    """tika testArabicMisleadingCharset.html: says UTF-8 and is windows-1256."""
    assert _read(_html(text, declared).encode(encoding)).text == f"A title\n\n{text}"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
def test_a_byte_order_mark_wins(encoding: str) -> None:
    """tika testHTML_charset_utf16le.html."""
    data = ("\ufeff" + _html(TEXT, "iso-8859-1")).encode(encoding)
    assert _read(data).text == f"A title\n\n{TEXT}"


def test_only_what_a_browser_shows_is_text() -> None:
    body = (
        "One<script>alert('no')</script> two<style>p {}</style><!-- no --> <b>th</b>ree&nbsp;&amp; four</p>"
        "<ul><li>five</ul><table><tr><td>six<td>seven</table><p>eight<br>nine <img alt='ten'>"
    )
    words = _read(_html(body, title="").encode()).text.split()
    assert words == ["One", "two", "three", "&", "four", "five", "six", "seven", "eight", "nine", "ten"]


def test_no_text_is_a_warning_not_a_failure() -> None:
    assert _read(b"<html><body><img src='scan.png'></body></html>").warnings == [pages.NO_TEXT]


@pytest.mark.parametrize("data", [b"%PDF-1.7 x", b"PK\x03\x04 x", b"\x89PNG x", b"\xd0\xcf\x11\xe0 x"])
def test_another_format_is_refused_for_good(data: bytes) -> None:
    with pytest.raises(Permanent) as caught:
        _read(data)
    assert caught.value.reason == "not-html"


def test_a_long_page_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "MAX_HTML", 100)
    found = _read(_html("x" * 300).encode())
    assert found.text.startswith("A title")
    assert found.warnings == ["only the first 100 bytes were read"]


MARKDOWN = """
# A heading

Some *emphasis*, com**pile**d, a [link](https://example.com) and `code`.

| a | b |
|---|---|
| one | two |

- item

```
block
```
"""


def test_markdown_loses_its_marks() -> None:
    found = markup.read_markdown(io.BytesIO(MARKDOWN.encode()))
    words = found.text.split()
    assert words[:13] == [
        "A",
        "heading",
        "Some",
        "emphasis,",
        "compiled,",
        "a",
        "link",
        "and",
        "code.",
        "a",
        "b",
        "one",
        "two",
    ]
    assert words[13:] == ["item", "block"]
    assert found.pages[0].reader == "markdown-it, utf-8"


def test_markdown_has_the_encodings_of_plain_text() -> None:
    assert markup.read_markdown(io.BytesIO(TEXT.encode("windows-1252"))).text == TEXT
    with pytest.raises(Permanent) as caught:
        markup.read_markdown(io.BytesIO(b"PK\x03\x04"))
    assert caught.value.reason == "not-text"


def test_long_markdown_is_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "MAX_MARKDOWN", 10)
    assert "**" in markup.read_markdown(io.BytesIO(MARKDOWN.encode())).text
