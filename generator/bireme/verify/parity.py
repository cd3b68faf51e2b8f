"""Served scores against the original TensorFlow model, request by request."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bireme.client import RankingClient
from bireme.errors import BiremeError, VerifyError
from bireme.requests import Request, count_candidates, to_tensors
from bireme.verify.tolerance import Tolerance

__all__ = ["Parity", "compare_served", "stack_users"]

Array = np.ndarray[Any, Any]
Scores = dict[str, Array]


@dataclass
class Parity:
    """What a comparison found.

    Args:
        protocol: "grpc" or "http".
        requests: how many were compared; each user of a request of several counts as one.
        together: how many requests of several users were among what was sent.
        scores: how many scores they held.
        differences: task → largest |served − original|, and the index of the request that has it.
        max_relative: largest difference relative to the original score (at least 1e-12).
        counts: every N that was sent.
        failures: request index → error.
        tolerances: task → what was allowed, as far as `require` has been asked.
    """

    protocol: str
    requests: int = 0
    together: int = 0
    scores: int = 0
    differences: dict[str, tuple[float, int]] = field(default_factory=dict)
    max_relative: float = 0.0
    counts: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)

    @property
    def max_difference(self) -> float:
        """The largest of all tasks."""
        return max((difference for difference, _ in self.differences.values()), default=0.0)

    def add(self, index: int, served: Scores, expected: Mapping[str, Array]) -> None:
        """Take one request into account."""
        for task, wanted in expected.items():
            shape = served[task].shape if task in served else None
            if shape != wanted.shape:
                self.failures[index] = f"task '{task}': scores of shape {shape} for {len(wanted)} candidates"
                return
        self.requests += 1
        for task, wanted in expected.items():
            found = served[task]
            difference = np.abs(found.astype(np.float64) - wanted)
            difference = np.where(np.isfinite(difference), difference, np.inf)
            self.scores += wanted.size
            self.counts.add(wanted.size)
            largest = float(difference.max(initial=0.0))
            if task not in self.differences or largest > self.differences[task][0]:
                self.differences[task] = (largest, index)
            relative = difference / np.maximum(np.abs(wanted), 1e-12)
            self.max_relative = max(self.max_relative, float(relative.max(initial=0.0)))

    def as_data(self) -> dict[str, Any]:
        """As JSON values."""
        keys = ("protocol", "requests", "together", "scores", "max_difference", "max_relative")
        return {
            **{key: getattr(self, key) for key in keys},
            "tasks": {
                task: {
                    "max_difference": difference,
                    "tolerance": self.tolerances[task].value,
                    "tolerance_from": self.tolerances[task].reason,
                }
                for task, (difference, _) in self.differences.items()
            },
        }

    def require(self, tolerances: Mapping[str, Tolerance]) -> None:
        """Fail if a request failed, or a task's score is farther from the original than its tolerance.

        Raises:
            VerifyError: naming the first failure, or the worst request.
        """
        self.tolerances = tolerances
        if self.failures:
            index, message = next(iter(sorted(self.failures.items())))
            more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
            raise VerifyError(
                f"request {index} over {self.protocol}", f"failed: {message}{more}", "see the server's log"
            )
        if not self.requests:
            raise VerifyError(self.protocol, "no request was compared", "ask for at least one")
        for task, (difference, index) in self.differences.items():
            allowed = tolerances[task]
            if difference > allowed.value:
                limit = f"(tolerance {allowed.value:.3g}: {allowed.reason})"
                raise VerifyError(
                    f"request {index} over {self.protocol}",
                    f"differs from the original model by {difference:.3g} in '{task}' {limit}",
                    "is the repository built from this SavedModel? run `bireme build` again",
                )


def compare_served(
    connect: Callable[[], RankingClient],
    protocol: Literal["grpc", "http"],
    requests: Sequence[Request],
    expected: Sequence[Mapping[str, Array]],
    clients: int,
    progress: Callable[[int], None] = lambda _: None,
    together: Sequence[Sequence[int]] = (),
) -> Parity:
    """Send every request once, from several clients in parallel, and compare.

    Args:
        connect: makes one client; called once a thread.
        protocol: for the result's label.
        requests: what to send.
        expected: the original model's scores for each, task → [N].
        clients: how many threads.
        progress: called with the number of finished requests.
        together: indices of requests that are also sent as the users of one.
    """
    parity = Parity(protocol)
    work: queue.SimpleQueue[Sequence[int]] = queue.SimpleQueue()
    for indices in _mixed([[index] for index in range(len(requests))], together):
        work.put(indices)
    lock = threading.Lock()
    ends: list[str] = []

    def answer(client: RankingClient, indices: Sequence[int]) -> None:
        try:
            tensors = stack_users([to_tensors(client.features, requests[index]) for index in indices])
            served = client.infer(tensors)
        except Exception as error:  # whatever went wrong, this request was not answered
            users = f"{len(indices)} users, " if len(indices) > 1 else ""
            with lock:
                parity.failures[indices[0]] = (
                    f"{_text(error)} ({users}N = {count_candidates(requests[indices[0]])})"
                )
        else:
            with lock:
                parity.together += len(indices) > 1
                for user, index in enumerate(indices):
                    mine = {task: scores[user] for task, scores in served.items() if user < len(scores)}
                    parity.add(index, mine, expected[index])
        progress(parity.requests + len(parity.failures))

    def run() -> None:
        try:
            with connect() as client:
                while not work.empty():
                    answer(client, work.get_nowait())
        except queue.Empty:  # another thread took the last one
            return
        except Exception as error:
            ends.append(_text(error))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while not work.empty():  # every client ended before the work did
        parity.failures[work.get_nowait()[0]] = ends[-1]
    return parity


def stack_users(requests: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The tensors of one request that holds the users of several, in their order.

    Args:
        requests: feature → [1, …]; all with the same features and shapes.
    """
    first, *others = requests
    if not others:
        return dict(first)
    return {name: np.concatenate([request[name] for request in requests]) for name in first}


def _mixed(singles: list[Sequence[int]], groups: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Groups spread evenly among single requests."""
    mixed, step = list(singles), max(1, len(singles) // (len(groups) + 1))
    for number, group in enumerate(groups):
        mixed.insert(min(len(mixed), (number + 1) * (step + 1) - 1), group)
    return mixed


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, BiremeError) else repr(error)
