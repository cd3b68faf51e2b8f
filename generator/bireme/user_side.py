"""Which features describe the user: those that no request changes from candidate to candidate.

Logged requests often hold one row for each candidate, the user's features repeated. Here they are found, and
put where a request keeps them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from bireme.errors import SpecError

if TYPE_CHECKING:
    from bireme.requests import Request

__all__ = ["find_user_side", "with_user_side"]

#: With fewer requests of several candidates, a constant feature proves nothing.
_FEWEST = 5


def find_user_side(requests: Sequence[Request], where: str) -> tuple[str, ...]:
    """Features that are under `user` already, or under `items` and constant within every request.

    Args:
        requests: sample requests.
        where: what to name in an error.

    Raises:
        SpecError: too few requests of two or more candidates to tell, or no feature is constant.
    """
    telling = [request for request in requests if _most(request) > 1]
    if len(telling) < _FEWEST:
        raise SpecError(
            where,
            f"cannot be found from {len(telling)} sample requests of two or more candidates",
            f"give at least {_FEWEST} in the file that `samples` names, or list the user's inputs",
        )
    names = dict.fromkeys(name for request in telling for name in (*request["user"], *request["items"]))
    found = tuple(name for name in names if all(_constant(request, name) for request in telling))
    if not found:
        raise SpecError(
            where,
            "cannot be found: no feature is constant within every request",
            "list the user's inputs; `user: []` if there are none",
        )
    return found


def with_user_side(request: Request, user: Collection[str]) -> Request:
    """The request with the user's features under `user`, if they are repeated for every candidate.

    A feature whose values differ stays where it is, for whoever reads the request to refuse it.
    """
    moved = {
        name: request["items"][name][0]
        for name in request["items"]
        if name in user and _is_column(request, name) and _constant(request, name)
    }
    if not moved:
        return request
    items = {name: values for name, values in request["items"].items() if name not in moved}
    return {"user": {**request["user"], **moved}, "items": items}


def _most(request: Request) -> int:
    return max((len(values) for values in request["items"].values() if isinstance(values, list)), default=0)


def _is_column(request: Request, name: str) -> bool:
    values: Any = request["items"].get(name)
    return isinstance(values, list) and bool(values) and len(values) == _most(request)


def _constant(request: Request, name: str) -> bool:
    if name not in request["items"]:
        return True  # the user's, or left out
    return _is_column(request, name) and all(
        value == request["items"][name][0] for value in request["items"][name]
    )
