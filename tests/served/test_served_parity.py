"""Served scores are TensorFlow's: many requests, both protocols, 8 clients at once, batches really formed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from served_helpers import TOLERANCE, executions

from bireme.errors import VerifyError
from bireme.server.process import TritonServer
from bireme.synthetic import edge_counts
from bireme.verify.verify import verify
from bireme_runtime.plan import Plan

pytestmark = pytest.mark.triton

REQUESTS, CLIENTS = 1000, 8


def test_two_thousand_requests_over_both_protocols(
    spec: Path, repository: Path, server: TritonServer, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    before = executions(server)
    urls = {"grpc": server.grpc_url, "http": server.http_url}
    results = verify(spec, repository, urls, REQUESTS, CLIENTS, TOLERANCE).require().parity  # type: ignore[arg-type]
    after = executions(server)
    assert [result.protocol for result in results] == ["grpc", "http"]
    for result in results:
        assert result.requests == REQUESTS
        assert result.max_difference <= TOLERANCE
        assert result.counts >= set(edge_counts(plan.buckets))
    batches = {}
    for model in ("obd_preprocess", "obd_dnn"):
        requests, runs = (now - then for now, then in zip(after[model], before[model], strict=True))
        assert requests == 2 * REQUESTS
        assert runs < requests, f"{model} never ran two requests at once"
        batches[model] = requests / runs
    with capsys.disabled():
        worst = max(result.max_difference for result in results)
        sizes = ", ".join(f"{model} {size:.2f}" for model, size in batches.items())
        print(f"\n{2 * REQUESTS} requests, {CLIENTS} clients: max |difference| {worst:.2g}; batch {sizes}")


def test_a_single_wrong_weight_is_found(spec: Path, repository: Path, tmp_path: Path) -> None:
    """The sign of one item's embedding: the server starts, answers, and verify says no."""
    damaged = tmp_path / "repository"
    shutil.copytree(repository, damaged)
    arena = damaged / "obd_preprocess" / "1" / "arena_float32_w16.bin"
    table = np.fromfile(arena, np.float32).reshape(-1, 16)
    table[5] *= -1
    arena.write_bytes(table.tobytes())
    with TritonServer(damaged, exit_timeout=0) as server, pytest.raises(VerifyError) as caught:
        verify(spec, repository, {"grpc": server.grpc_url}, 60, 4, TOLERANCE).require()
    assert "differs from the original model by" in caught.value.message
    assert "run `bireme build` again" in caught.value.hint


def test_without_a_server_every_request_fails_and_nothing_hangs(spec: Path, repository: Path) -> None:
    with pytest.raises(VerifyError, match=r"request 0 over http: failed: .*refused.*and 7 more"):
        verify(spec, repository, {"http": "127.0.0.1:9"}, 8, 3, TOLERANCE).require()
