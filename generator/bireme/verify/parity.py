"""Served scores against the original TensorFlow model, request by request."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bireme.client import RankingClient
from bireme.errors import BiremeError, VerifyError
from bireme.requests import Request, count_candidates, to_tensors

__all__ = ["Parity", "compare_served"]

Array = np.ndarray[Any, Any]
Scores = dict[str, Array]


@dataclass
class Parity:
    """What a comparison found.

    Args:
        protocol: "grpc" or "http".
        requests: how many were compared.
        scores: how many scores they held.
        max_difference: largest |served − original|.
        max_relative: largest difference relative to the original score (at least 1e-12).
        counts: every N that was sent.
        worst: index of the request with the largest difference.
        failures: request index → error.
    """

    protocol: str
    requests: int = 0
    scores: int = 0
    max_difference: float = 0.0
    max_relative: float = 0.0
    counts: set[int] = field(default_factory=set)
    worst: int = -1
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, index: int, served: Scores, expected: Scores) -> None:
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
            if largest > self.max_difference:
                self.max_difference, self.worst = largest, index
            relative = difference / np.maximum(np.abs(wanted), 1e-12)
            self.max_relative = max(self.max_relative, float(relative.max(initial=0.0)))

    def require(self, tolerance: float) -> None:
        """Fail if a request failed, or a score is farther from the original than `tolerance`.

        Raises:
            VerifyError: naming the first failure, or the worst request.
        """
        if self.failures:
            index, message = next(iter(sorted(self.failures.items())))
            more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
            raise VerifyError(
                f"request {index} over {self.protocol}", f"failed: {message}{more}", "see the server's log"
            )
        if not self.requests:
            raise VerifyError(self.protocol, "no request was compared", "ask for at least one")
        if self.max_difference > tolerance:
            raise VerifyError(
                f"request {self.worst} over {self.protocol}",
                f"differs from the original model by {self.max_difference:.3g} (tolerance {tolerance:g})",
                "is the repository built from this SavedModel? run `bireme build` again",
            )


def compare_served(
    connect: Callable[[], RankingClient],
    protocol: Literal["grpc", "http"],
    requests: Sequence[Request],
    expected: Sequence[Scores],
    clients: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Parity:
    """Send every request once, from several clients in parallel, and compare.

    Args:
        connect: makes one client; called once a thread.
        protocol: for the result's label.
        requests: what to send.
        expected: the original model's scores for each, task → [N].
        clients: how many threads.
        progress: called with the number of finished requests.
    """
    parity = Parity(protocol)
    work: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(requests)):
        work.put(index)
    lock = threading.Lock()
    ends: list[str] = []

    def answer(client: RankingClient, index: int) -> None:
        try:
            tensors = to_tensors(client.features, requests[index])
            served = {task: scores[0] for task, scores in client.infer(tensors).items()}
        except Exception as error:  # whatever went wrong, this request was not answered
            with lock:
                parity.failures[index] = f"{_text(error)} (N = {count_candidates(requests[index])})"
        else:
            with lock:
                parity.add(index, served, expected[index])
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
        parity.failures[work.get_nowait()] = ends[-1]
    return parity


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, BiremeError) else repr(error)
