"""Freezing contracts: versions, refusals, and what CI finds."""

import json
from pathlib import Path

import pytest
from pydantic import create_model

from offsetzero.errors import IncompatibleSchema, SchemaError
from offsetzero.schemas import freeze, frozen
from offsetzero.schemas.codec import BUILT_IN
from offsetzero.schemas.event import Event, event_types


def _model(doc: str = "", **fields: object) -> dict[str, type[Event]]:
    """A model of the class name `Frozen`, which is in no registry."""
    model = create_model("Frozen", __base__=Event, __doc__=doc, **fields)  # type: ignore[call-overload]
    return {"test.frozen": model}


def test_the_contracts_of_the_package_are_those_of_its_models() -> None:
    modules = {module.__name__ for module in BUILT_IN}
    models = {name: model for name, model in event_types().items() if model.__module__ in modules}
    assert freeze.check(models) == []


def test_a_model_is_frozen_once_and_again_only_when_it_changes(tmp_path: Path) -> None:
    assert freeze.check(_model(a=(int, ...)), tmp_path) == [
        "test.frozen: the model is not frozen as v1; run `offsetzero schema freeze`"
    ]
    (first,) = freeze.freeze(_model(a=(int, ...)), tmp_path)
    assert first == tmp_path / "test.frozen" / "v1.avsc"
    assert freeze.freeze(_model("Another docstring.", a=(int, ...)), tmp_path) == []
    assert freeze.check(_model("Another docstring.", a=(int, ...)), tmp_path) == []
    grown = _model(a=(int, ...), b=(str, "x"))
    assert "v2" in freeze.check(grown, tmp_path)[0]
    (second,) = freeze.freeze(grown, tmp_path)
    assert second.name == "v2.avsc"
    assert freeze.check(grown, tmp_path) == []
    assert [contract.version for contract in frozen.read(tmp_path)["test.frozen"]] == [1, 2]


def test_a_changed_default_is_a_change(tmp_path: Path) -> None:
    """Fingerprints do not cover defaults, the comparison must."""
    freeze.freeze(_model(a=(int, 1)), tmp_path)
    assert freeze.check(_model(a=(int, 2)), tmp_path) != []


def test_a_breaking_change_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    freeze.freeze(_model(a=(int, ...)), tmp_path)
    broken = {**_model(a=(int, ...), b=(str, ...)), "test.other": _model(c=(int, ...))["test.frozen"]}
    with pytest.raises(IncompatibleSchema, match=r"Frozen\.b: not written"):
        freeze.freeze(broken, tmp_path)
    assert [path.name for path in tmp_path.rglob("*.avsc")] == ["v1.avsc"]
    assert any("Frozen.b" in problem for problem in freeze.check(broken, tmp_path))


def test_an_edited_contract_is_found(tmp_path: Path) -> None:
    freeze.freeze(_model(a=(int, ...)), tmp_path)
    newest = _model(a=(int, ...), b=(str, "x"))
    freeze.freeze(newest, tmp_path)
    path = tmp_path / "test.frozen" / "v1.avsc"
    schema = json.loads(path.read_text())
    schema["fields"][0]["type"] = "string"
    path.write_text(json.dumps(schema))
    assert any("v2" in problem for problem in freeze.check(newest, tmp_path))


def test_contracts_without_a_model_are_reported(tmp_path: Path) -> None:
    freeze.freeze(_model(a=(int, ...)), tmp_path)
    assert freeze.check({}, tmp_path) == ["test.frozen: has contracts but no model; the log still holds such events"]


@pytest.mark.parametrize(("name", "text"), [("v1.avsc", "{"), ("notes.txt", "x"), ("v01.avsc", "{}")])
def test_a_file_that_is_no_contract_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "test.frozen").mkdir()
    (tmp_path / "test.frozen" / name).write_text(text)
    with pytest.raises(SchemaError, match=name):
        frozen.read(tmp_path)


def test_a_gap_in_the_versions_is_named(tmp_path: Path) -> None:
    (path,) = freeze.freeze(_model(a=(int, ...)), tmp_path)
    path.rename(path.with_name("v2.avsc"))
    with pytest.raises(SchemaError, match="gap"):
        frozen.read(tmp_path)
