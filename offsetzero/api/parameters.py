"""What a request may ask in its query: a name that an operation does not have is an error, never passed over."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from offsetzero.api.problems import Problem


class ExactRoute(APIRoute):
    """A route that refuses parameters of the query that it does not know: who pages by `cursor` where the name is
    `before` would have the first page for ever."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        known = set(_names(self.dependant))
        there_are = f"there are {', '.join(sorted(known))}" if known else "there are none"

        async def answer_exactly(request: Request) -> Response:
            if query := request.scope["query_string"]:
                asked = dict.fromkeys(name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))
                if errors := [{"at": f"query.{name}", "detail": there_are} for name in asked if name not in known]:
                    detail = f"no such parameter: {', '.join(error['at'] for error in errors)}; {there_are}"
                    raise Problem(422, "invalid-request", detail, errors=errors)
            return await answer(request)

        return answer_exactly


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
