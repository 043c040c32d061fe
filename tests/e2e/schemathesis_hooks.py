"""What schemathesis is told besides the OpenAPI document: ids that there are, the tenant's own and another's."""

import json
import os
from typing import Any

import schemathesis
from hypothesis import strategies as st

KNOWN = json.loads(os.environ["OZ_TEST_KNOWN"])
"""`ours` and `theirs`, the ids of the two tenants, and a `mark` that all texts of the other one have."""


for kind in ("text/plain", "text/markdown"):
    schemathesis.openapi.media_type(kind, st.text(st.characters(codec="utf-8"), min_size=1).map(str.encode))


@schemathesis.hook
def flatmap_path_parameters(_context: Any, path_parameters: dict[str, Any] | None) -> st.SearchStrategy[Any]:
    """In two thirds of the paths an id that there is."""
    return _known(path_parameters, list(path_parameters or ()), [*KNOWN["ours"], *KNOWN["theirs"]])


@schemathesis.hook
def flatmap_query(_context: Any, query: dict[str, Any] | None) -> st.SearchStrategy[Any]:
    """Likewise in queries; and words of the other tenant in searches."""
    words = [KNOWN["mark"]] if "q" in (query or ()) else [*KNOWN["ours"], *KNOWN["theirs"]]
    return _known(query, [name for name in query or () if name in ("before", "document_id", "q")], words)


@schemathesis.check
def nothing_is_anothers(_context: Any, response: Any, case: Any) -> None:
    """An answer has nothing of the other tenant that was not in the request, and finds nothing under its ids."""
    asked = json.dumps([case.path_parameters, case.query, str(case.body)], default=str)
    shown = [text for text in [KNOWN["mark"], *KNOWN["theirs"]] if text in response.text and text not in asked]
    assert not shown, f"it shows what is another tenant's: {shown}"
    named = set(KNOWN["theirs"]) & set((case.path_parameters or {}).values())
    assert not named or response.status_code >= 400, f"it has found what is another tenant's: {named}"


def _known(given: dict[str, Any] | None, names: list[str], values: list[str]) -> st.SearchStrategy[Any]:
    if given is None or not names:
        return st.just(given)
    known = st.fixed_dictionaries(dict.fromkeys(names, st.sampled_from(values)))
    return st.just(given) | known.map(lambda found: {**given, **found})
