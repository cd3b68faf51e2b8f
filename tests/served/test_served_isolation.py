"""Requests that run together leave each other alone: bad beside good, small beside large, one beside many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
from bad_requests import BAD, for_users, with_candidates
from served_helpers import (
    PROTOCOLS,
    TOLERANCE,
    Array,
    Bare,
    Original,
    Tensors,
    executions,
    in_parallel,
    texts,
)
from tritonclient.utils import InferenceServerException

from bireme.requests import to_tensors
from bireme.server.process import TritonServer
from bireme.server.stubs import live_stubs
from bireme.synthetic import make_requests
from bireme_runtime.plan import Plan

pytestmark = pytest.mark.triton

Case = tuple[Tensors, Array]


def asker(server: TritonServer, turn: int, cases: Mapping[int, Case], rounds: int) -> Callable[[], float]:
    """A client that sends the cases in turn, beginning with another one than its neighbours."""

    def ask() -> float:
        send = Bare(server, PROTOCOLS[turn % 2])
        worst = 0.0
        for step in range(rounds):
            tensors, expected = cases[(turn // 2 + step) % len(cases)]
            found = send(tensors)
            assert found.shape == expected.shape
            worst = max(worst, float(np.abs(found - expected).max()))
        return worst

    return ask


def merged(server: TritonServer, run: Callable[[], None]) -> dict[str, float]:
    """Model → requests an execution while `run` ran."""
    before = executions(server)
    run()
    after = executions(server)
    counts = {model: (a - c, b - d) for model, (a, b) in after.items() for c, d in [before[model]]}
    return {model: requests / runs for model, (requests, runs) in counts.items() if runs}


def test_bad_requests_beside_good_ones(
    server: TritonServer, tensors: Tensors, original: Original, plan: Plan, words: dict[str, list[bytes]]
) -> None:
    """Six clients send good requests, four send every bad one: right scores here, the right reason there."""
    requests = [to_tensors(plan.features, r) for r in make_requests(plan, words, [1, 20, 21, 80, 300, 512])]
    cases = {i: (request, original.scores(request)) for i, request in enumerate(requests)}

    def bad_client(turn: int) -> Callable[[], float]:
        def ask() -> float:
            send = Bare(server, PROTOCOLS[turn % 2])
            for case in islice(cycle(BAD), turn, turn + 3 * len(BAD)):
                change, message = BAD[case]
                with pytest.raises(InferenceServerException, match=message):
                    send(change(tensors))
            return 0.0

        return ask

    def run() -> None:
        good = [asker(server, turn, cases, 60) for turn in range(6)]
        differences.extend(in_parallel([*good, *(bad_client(turn) for turn in range(4))]))

    differences: list[float] = []
    batches = merged(server, run)
    assert max(differences) <= TOLERANCE
    assert batches["obd_preprocess"] > 1
    assert batches["obd_dnn"] > 1


def test_two_very_different_requests_in_turn(
    server: TritonServer, example, tensors: Tensors, original: Original
) -> None:
    """A/B/A/B from eight clients out of step, so that A and B meet in one batch."""
    first = with_candidates(tensors, 1) | {"recent_items": texts([]), "hour": np.array([[0]])}
    large = for_users(with_candidates(tensors, 512), 3)
    large["hour"] = np.array([[23], [12], [5]])
    large["affinity"] = np.linspace(0, 9, 3 * 512, dtype=np.float32).reshape(3, 512)
    large["item_id"] = large["item_id"][:, ::-1]
    cases = {0: (first, original.scores(first)), 1: (large, original.scores(large))}
    differences: list[float] = []
    batches = merged(
        server,
        lambda: differences.extend(in_parallel([asker(server, turn, cases, 40) for turn in range(8)])),
    )
    assert max(differences) <= TOLERANCE
    assert batches["obd_preprocess"] > 1


def test_equal_strings_with_histories_of_other_lengths(
    server: TritonServer, tensors: Tensors, original: Original
) -> None:
    """Everything equal but how long the history is: sequences of one batch are cut where they end."""
    history = list(tensors["recent_items"][0])
    cases = {}
    for case, length in enumerate([0, 1, 2, 7, 500, 3]):
        request = tensors | {"recent_items": texts([history[k * k % len(history)] for k in range(length)])}
        cases[case] = (request, original.scores(request))
    assert len({expected.tobytes() for _, expected in cases.values()}) > 3  # the history matters
    assert max(in_parallel([asker(server, turn, cases, 60) for turn in range(8)])) <= TOLERANCE


def test_requests_with_and_without_defaults(
    server: TritonServer, tensors: Tensors, original: Original
) -> None:
    cases = {}
    for case, left_out in enumerate([set(), {"affinity"}, {"recent_items"}, {"affinity", "recent_items"}]):
        request = {n: a for n, a in with_candidates(tensors, 10 + case).items() if n not in left_out}
        cases[case] = (request, original.scores(request))
    assert max(in_parallel([asker(server, turn, cases, 60) for turn in range(8)])) <= TOLERANCE


def test_many_users_beside_single_ones(
    server: TritonServer, tensors: Tensors, original: Original, plan: Plan, words: dict[str, list[bytes]]
) -> None:
    single = [to_tensors(plan.features, r) for r in make_requests(plan, words, [33] * 16, seed=5)]
    cases: dict[int, Case] = {}
    for case, users in enumerate([1, 16, 2, 5]):
        several = single[:users]
        for each in several:
            each["recent_items"] = texts(list(np.resize(tensors["recent_items"][0], 6)))
        request = {name: np.concatenate([each[name] for each in several]) for name in single[0]}
        cases[case] = (request, original.scores(request))
    assert max(in_parallel([asker(server, turn, cases, 30) for turn in range(8)])) <= TOLERANCE


def test_one_request_is_always_answered_alike(server: TritonServer, tensors: Tensors) -> None:
    """Whichever instance answers, and whatever the batch: differences are roundings, not other answers."""
    send = Bare(server, "grpc")
    first = send(tensors)
    cases = {0: (tensors, first)}
    assert max(in_parallel([asker(server, turn, cases, 50) for turn in range(8)])) <= 1e-6


def test_two_instances_answer_from_one_copy_of_the_tables(
    two_instances: Path, tensors: Tensors, original: Original
) -> None:
    """Both processes map the very files, shared and read-only, and whoever answers, the scores are right."""
    cases = {}
    for case, count in enumerate([1, 512]):
        request = with_candidates(tensors, count) | {"hour": np.array([[case * 23]])}
        cases[case] = (request, original.scores(request))
    with TritonServer(two_instances, exit_timeout=0) as server:
        assert max(in_parallel([asker(server, turn, cases, 40) for turn in range(8)])) <= TOLERANCE
        instances = {name: pid for pid, name in live_stubs(server._prefix).items()}
        assert {"obd_preprocess_0_0", "obd_preprocess_0_1"} <= set(instances)
        arenas = sorted((two_instances / "obd_preprocess" / "1").glob("arena_*.bin"))
        assert arenas
        for name in ("obd_preprocess_0_0", "obd_preprocess_0_1"):
            lines = Path(f"/proc/{instances[name]}/maps").read_text().splitlines()
            maps = {f[-1]: (f[1], int(f[4])) for f in map(str.split, lines) if len(f) == 6}
            assert [maps[str(arena)] for arena in arenas] == [("r--s", a.stat().st_ino) for a in arenas]
