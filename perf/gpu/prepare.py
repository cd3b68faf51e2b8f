"""Builds, where TensorFlow is, all that the check on a GPU machine needs: that machine needs no TensorFlow.

    python perf/gpu/prepare.py --out build/gpu/prepared

writes, for the network of network.py ("network"), the same without a user's side ("flat") and the example
("example"): a repository for each target, TensorFlow's scores of sampled requests (golden/), requests for
loads (requests/), and prepared.json with the numbers of the builds. `--target cpu` prepares a rehearsal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

import numpy as np

from files import write_json

__all__ = ["main", "prepare"]

_CODE = "import sys; from bireme.cli import main; sys.exit(main())"
_COUNT = 16  # requests of each size
_GOLDEN = 300  # requests whose scores are recorded


def prepare(
    out: Path, targets: Sequence[str], cores: int, sizes: Mapping[str, Sequence[int]], example: Path
) -> None:
    """Write everything.

    Args:
        out: folder for it; what an earlier run wrote there is replaced.
        targets: of the repositories.
        cores: of the machine that will serve.
        sizes: "network", "flat" and "example" → candidates of the requests for loads.
        example: spec of the example.

    Raises:
        subprocess.CalledProcessError: a build fails; its output says why.
    """
    from gpu.network import make_request, repeat_user, to_lines, write_model

    shutil.rmtree(out, ignore_errors=True)
    model = out.parent / "model"
    network, flat = write_model(model, cores)
    specs = {"network": network, "flat": flat, "example": _with_cores(example, out.parent, cores)}
    described = {
        what: {target: _build(spec, out / what / target, target) for target in targets}
        for what, spec in specs.items()
    }
    for what, spec in specs.items():
        golden = out / "golden" / f"{what}.npz"
        golden.parent.mkdir(parents=True, exist_ok=True)
        # Requests are sampled from the plan, which is the same for all targets.
        _bireme("verify", spec, "-r", out / what / targets[0], "--record", golden, "--requests", _GOLDEN)
    folder = out / "requests"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    for candidates in sizes["network"]:
        requests = [make_request(rng, candidates) for _ in range(_COUNT)]
        (folder / f"network_{candidates}.jsonl").write_text(to_lines(requests), encoding="utf-8")
        repeated = [repeat_user(request) for request in requests]
        (folder / f"flat_{candidates}.jsonl").write_text(to_lines(repeated), encoding="utf-8")
    for candidates in sizes["example"]:
        text = to_lines(_of_example(specs["example"], out / "example" / targets[0], candidates))
        (folder / f"example_{candidates}.jsonl").write_text(text, encoding="utf-8")
    write_json(out / "prepared.json", {"cores": cores, "builds": described})


def _with_cores(spec: Path, folder: Path, cores: int) -> Path:
    """The example's spec for a machine with so many cores."""
    import yaml

    raw = yaml.safe_load(spec.read_text(encoding="utf-8"))
    raw |= {name: str((spec.parent / raw[name]).resolve()) for name in ("saved_model", "samples")}
    path = folder / "example.yaml"
    path.write_text(yaml.safe_dump({**raw, "cores": cores}), encoding="utf-8")
    return path


def _build(spec: Path, repository: Path, target: str) -> dict[str, Any]:
    """Build, and say what came out: nodes after each pass, bytes and operations of a request."""
    print(f"{spec.name} → {repository}", file=sys.stderr)
    repository.parent.mkdir(parents=True, exist_ok=True)
    text = _bireme("build", spec, "-r", repository, "--target", target, "--json")
    report = json.loads(text[text.index("{") :])
    kept = ("passes", "requests", "tables", "precision", "handover")
    found = {name: report[name] for name in kept if name in report}
    with contextlib.suppress(ImportError):
        import onnx

        (path,) = repository.glob("*_dnn/1/model.onnx")
        found["onnx_nodes"] = len(onnx.load(str(path)).graph.node)
    return found


def _bireme(*arguments: Any) -> str:
    """Run a verb in a process of its own; its output."""
    command = [sys.executable, "-c", _CODE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
        done.check_returncode()
    return done.stdout


def _of_example(spec: Path, repository: Path, candidates: int) -> list[dict[str, Any]]:
    """Recorded users with recorded candidates, as JSON values."""
    from bireme.requests import read_requests
    from bireme.spec import read_spec
    from bireme.verify.verify import read_vocabularies
    from bireme_runtime.plan import Plan
    from traffic import make_traffic

    read = read_spec(spec)
    folder = next(repository.glob("*_preprocess")) / "1"
    plan = Plan.read(folder / "plan.json")
    recorded = read_requests(read.samples, read.user) if read.samples else []
    found = make_traffic(plan, read_vocabularies(plan, folder), recorded, candidates, _COUNT)
    return [{side: dict(part) for side, part in request.items()} for request in found]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/gpu/prepared"), help="folder to write to")
    parser.add_argument("--target", nargs="+", default=["gpu-python", "gpu"], help="cpu: for a rehearsal")
    parser.add_argument("--cores", type=int, default=16, help="of the machine that will serve")
    parser.add_argument("--network", type=int, nargs="+", default=[256, 500, 1000], help="every N to load")
    parser.add_argument("--example", type=int, nargs="+", default=[80], help="the same for the example")
    parser.add_argument("--spec", type=Path, default=Path("examples/obd/bireme.yaml"), help="the example's")
    options = parser.parse_args(arguments)
    sizes = {"network": options.network, "example": options.example}
    prepare(options.out, options.target, options.cores, sizes, options.spec)


if __name__ == "__main__":
    main()
