"""The committed example documents are what their script makes."""

from pathlib import Path

import pdfs
import pytest

FOLDER = Path(pdfs.make.__file__).parent


@pytest.mark.parametrize("name", ["policy.pdf", "handbook.pdf", "corrupt.pdf"])
def test_the_script_makes_the_committed_bytes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdfs.make, "__file__", str(tmp_path / "make.py"))
    pdfs.make.main()
    assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
