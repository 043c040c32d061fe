"""Modules that a command line names."""

from pathlib import Path

import pytest

from offsetzero.errors import ConfigurationError
from offsetzero.imports import import_module


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import no_such_package", "needs the package 'no_such_package', which is not installed"),
        ("import offsetzero.nowhere", "imports offsetzero.nowhere, and offsetzero has no such module"),
    ],
)
def test_what_a_module_lacks_is_told(line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacking.py").write_text(line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match=said):
        import_module("lacking")
    with pytest.raises(ConfigurationError, match="there is no module nothing_here in"):
        import_module("nothing_here")
