"""What TensorRT made of the typed networks: AUC and ranks of its scores beside TensorFlow's.

    PYTHONPATH=perf python -m half.judge CASES SCORES.npz --out perf/results/precision_tensorrt.json

CASES is what `precision.py --cases` wrote, SCORES.npz what `run_tensorrt.py` brought back from the GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.fp16.ranking import measure_change
from files import write_json
from half.clicks import make_clicks

#: The held-out requests of precision.py: its seed and candidates.
_SEED, _CANDIDATES = 3, 100


def judge(cases: Path, scores: Path) -> list[dict[str, Any]]:
    """One entry a model and task: differences, AUC change, largest rank move."""
    results = []
    found = np.load(scores)
    for key in sorted(found.files):
        model, task = key.split("/")
        expected = np.load(cases / f"{model}.npz")[f"expected_{task}"]
        clicks = make_clicks(len(expected), _CANDIDATES, seed=_SEED).labels[task]
        change = measure_change(list(expected), list(found[key]), list(clicks))
        worst = float(np.abs(found[key] - expected).max())
        results.append(
            {
                "model": model,
                "task": task,
                "max_difference": worst,
                "auc_change": change.auc,
                "max_rank_move": change.rank_move,
                "held_out_rows": int(expected.size),
            }
        )
    return results


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument(
        "--machine", default="one NVIDIA H200, TensorRT 8.6.0", help="where the scores are from"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    results = judge(options.cases, options.scores)
    for entry in results:
        print(*(f"{name}={value}" for name, value in entry.items()))
    write_json(options.out, {"machine": options.machine, "models": results})


if __name__ == "__main__":
    main()
