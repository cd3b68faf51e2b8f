"""The dense network on a real GPU: with graphs, in the background and plainly, whatever order shapes come in.

The sequences of tests/runtime/test_dense_gpu.py, where the GPU is a stand-in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))

import tiny_network
from gpu_engine_helpers import Made, child
from tiny_network import BUCKETS, NAME, USERS, reference

from bireme_runtime.gpu_facts import visible_gpus

pytestmark = pytest.mark.gpu

# FP16 weights and sums of 2048 products, then a sigmoid; one kernel may serve one shape and not the other.
_TOLERANCE = 0.01
#: Users and candidates: one, in the middle, at each bucket's edges, full, none.
_SIZES = ((1, 1), (1, 63), (1, 64), (1, 65), (1, 128), (2, 64), (3, 100), (USERS, 128), (USERS, 1), (0, 64))
#: Alternating, growing, shrinking; together what the batcher puts together, more users than one run takes.
_BATCHES = (
    *([0], [7], [0], [7]),
    *([index] for index in range(len(_SIZES))),
    *([index] for index in reversed(range(len(_SIZES)))),
    *([2, 2, 2], [0, 4, 5, 6], [7, 7, 8], list(range(len(_SIZES))), [9], [3, 9, 3]),
)


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(11)
    arrays = {}
    for index, (users, candidates) in enumerate(_SIZES):
        user, items = (users, tiny_network.USER), (users, candidates, tiny_network.ITEM)
        arrays[f"user{index}"] = random.standard_normal(user).astype(np.float16)
        arrays[f"items{index}"] = random.standard_normal(items).astype(np.float16)
    path = tmp_path_factory.mktemp("sequences") / "requests.npz"
    np.savez(path, **arrays)
    return path


def _run(
    made: Made, requests: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **environment: str
) -> tuple[dict[str, np.ndarray], str]:
    """Scores of every batch, and the instance's log."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (folder / "batches.json").write_text(json.dumps(_BATCHES), encoding="utf-8")
    script = str(Path(__file__).with_name("run_sequences.py"))
    paths = (made.version, requests, folder / "batches.json", folder / "scores.npz")
    done = child([script, *map(str, paths)])
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    with np.load(folder / "scores.npz") as stored:
        return dict(stored), done.stdout


@pytest.mark.parametrize("background", ["on", "off"])
@pytest.mark.parametrize("graphs", ["on", "off"])
def test_every_request_gets_its_own_scores_in_any_order(
    made: Made,
    requests: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    graphs: str,
    background: str,
) -> None:
    found, log = _run(
        made, requests, tmp_path, monkeypatch, BIREME_GRAPHS=graphs, BIREME_BACKGROUND=background
    )
    with np.load(requests) as stored:
        wanted = [reference(stored[f"user{i}"], stored[f"items{i}"]) for i in range(len(_SIZES))]
    assert wanted[7].std() > 10 * _TOLERANCE  # else any constant would pass
    for number, batch in enumerate(_BATCHES):
        for place, index in enumerate(batch):
            text = f"batch {number}: {batch}, request {place}"
            answer = found[f"{number}_{place}"]
            np.testing.assert_allclose(answer, wanted[index], rtol=0, atol=_TOLERANCE, err_msg=text)
    gpu = visible_gpus()[0].name
    captured = len(BUCKETS) * 3 if graphs == "on" else 0
    assert f"on {gpu} (GPU 0), 2 lanes, {captured or 'no'} CUDA graphs" in log
    assert log.count("captured CUDA graph") == 2 * captured  # each lane has its own


def test_the_same_request_gets_the_same_scores_between_others(
    made: Made, requests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit where it runs in the same shape, whatever ran before it."""
    found, _ = _run(made, requests, tmp_path, monkeypatch, BIREME_GRAPHS="on")
    alone: dict[int, np.ndarray] = {}
    for number, batch in enumerate(_BATCHES):
        if len(batch) == 1:
            first = alone.setdefault(batch[0], found[f"{number}_0"])
            np.testing.assert_array_equal(found[f"{number}_0"], first, err_msg=f"batch {number}: {batch}")
    assert len(alone) == len(_SIZES)


def test_the_timeline_is_in_the_order_of_the_work(
    made: Made, requests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(made, requests, tmp_path, monkeypatch, BIREME_TIMELINE=str(tmp_path / "gpu.json"))
    launches = json.loads((tmp_path / f"gpu_{NAME}.json").read_text())
    assert len(launches) > len(_BATCHES) / 2
    for launch in launches:
        times = [*launch["h2d"], *launch["compute"][1:], *launch["d2h"][1:]]
        assert times == sorted(times)
        assert times[-1] - times[0] > 1.0, "a launch of less than a microsecond"
    assert {launch["lane"] for launch in launches} == {0, 1}
