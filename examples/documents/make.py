"""Makes the PDF files of this folder: `python examples/documents/make.py`. The same bytes every time.

A PDF writer as small as it can be: pages of lines in one of the fonts that every reader has.
"""

import textwrap
from pathlib import Path

POLICY = [
    """\
    Travel and Expense Policy

    This policy applies to all employees who travel on behalf of the company. Travel must be approved by
    the line manager before it is booked. The company pays for the most economical way of travel that
    fits the purpose of the journey.

    Flights are booked in economy class. Flights of more than eight hours may be booked in premium
    economy class with the approval of a director. Train travel is preferred to flights for journeys of
    less than four hours. First class train tickets may be booked when they cost no more than a flight.

    Hotels are booked up to 160 euros a night, breakfast included. In cities with higher prices the
    travel desk publishes another limit each quarter. Private accommodation is reimbursed with a flat
    rate of 30 euros a night.
    """,
    """\
    Reimbursement

    Expenses are submitted within 30 days after the journey. Each expense needs a receipt that shows
    date, amount and purpose. Expenses without a receipt are reimbursed up to 15 euros when the employee
    declares them in writing.

    Approved expenses are reimbursed with the next payroll run. The finance team checks every expense
    above 500 euros and a random sample of the others. Expenses that break this policy are not
    reimbursed, and repeated violations are reported to the line manager.

    Entertainment of customers needs the names of all guests. Alcohol is reimbursed only as part of a
    meal. Fines and private upgrades are never reimbursed.
    """,
]
HANDBOOK = [
    """\
    Operations Handbook

    This handbook tells the engineer on duty what to do when the event pipeline needs attention. Each
    chapter names the first thing to look at, and ends with the way back to normal operation. Keep calm,
    write down what you do, and ask for a second pair of eyes before you change data.
    """,
    """\
    Consumer lag

    The lag of a group is the number of records that it has not finished. Look at the members of the
    group first. A group without members does not consume: start it again. A group whose members are all
    busy is too slow: add members up to the number of partitions.

    When one partition lags alone, look at its oldest record. A record that waits for its retry delays
    only the records of its own key. The other keys of the partition go on.

    Lag that falls steadily needs no action. Divide the lag by the rate at which it falls to see when
    the group has caught up.
    """,
    """\
    Dead letters

    A record that cannot be read is dead-lettered at its first failure. A record whose provider stays
    unavailable is dead-lettered after its last retry. The original bytes are kept in both cases, with
    the reason, the attempt and the place in the log where the record came from.

    Read the dead letters of the group, and sort them by reason. Repair the cause first: deploy the
    fix, or wait for the provider. Then upload the document again: after a run that failed, the same file
    starts a new one. A file that is corrupt must be repaired by whoever sent it.
    """,
    """\
    New subscribers

    A new group reads from offset zero: everything that the log retains, then whatever follows. It has
    offsets, retry topics and dead letters of its own, and no other group notices it. Watch its lag fall
    to see when it has caught up.

    Never delete a topic to start over. Offsets of a deleted topic mean nothing in a new one. A new group
    under another name costs nothing, and leaves everything as it is.
    """,
]

_WIDTH, _HEIGHT, _MARGIN, _LEADING = 595, 842, 64, 15
_COLUMNS = 88


def pdf(pages: list[str], *, title: str = "") -> bytes:
    """A PDF file of text pages.

    Args:
        pages: text of each page in Latin-1; paragraphs are set apart by empty lines.
        title: the title in the document information.
    """
    count = len(pages)
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for index, page in enumerate(pages):
        content = _content(page)
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {_WIDTH} {_HEIGHT}] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * index} 0 R >>".encode()
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream")
    objects.append(b"<< /Title (" + _escape(title) + b") >>")
    return _file(objects)


def corrupt_pdf() -> bytes:
    """A file that starts like a PDF and that no reader can open: its objects are cut to pieces."""
    whole = pdf(["The end of this file was lost."])
    return whole[:9] + bytes((byte * 167 + 13) % 251 for byte in whole[9:400] if byte not in b"<>[]()/")


def _lines(page: str) -> list[str]:
    lines: list[str] = []
    for paragraph in textwrap.dedent(page).strip().split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), _COLUMNS), ""]
    return lines[:-1]


def _content(page: str) -> bytes:
    shown = b" T*\n".join(b"(" + _escape(line) + b") Tj" for line in _lines(page))
    start = f"BT /F1 11 Tf {_LEADING} TL {_MARGIN} {_HEIGHT - _MARGIN} Td\n".encode()
    return start + shown + b"\nET"


def _escape(text: str) -> bytes:
    return text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _file(objects: list[bytes]) -> bytes:
    result = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(result))
        result += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(result)
    result += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    for offset in offsets:
        result += f"{offset:010} 00000 n \n".encode()
    size, info = len(objects) + 1, len(objects)
    result += f"trailer\n<< /Size {size} /Root 1 0 R /Info {info} 0 R >>\n".encode()
    result += f"startxref\n{start}\n%%EOF\n".encode()
    return bytes(result)


def main() -> None:
    """Write the files beside this script."""
    folder = Path(__file__).parent
    (folder / "policy.pdf").write_bytes(pdf(POLICY, title="Travel and Expense Policy"))
    (folder / "handbook.pdf").write_bytes(pdf(HANDBOOK, title="Operations Handbook"))
    (folder / "corrupt.pdf").write_bytes(corrupt_pdf())


if __name__ == "__main__":
    main()
