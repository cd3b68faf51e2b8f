"""`bireme engine` from a repository to plan, passport and report.

TensorRT is a stand-in (fake_tensorrt.py) in its API of 8.6, 10 and 11, and so is the GPU, as neither can be
had here; the execution of the plan in the self check is left out with them. tests/gpu/test_gpu_engine.py does
the same with the real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from engine_helpers import H200, MIXED, gpu_repository, run
from fake_tensorrt import DataType, FakeTensorRT

from bireme.engine.options import Options
from bireme_runtime import passport as passports
from bireme_runtime.passport import Here

pytestmark = pytest.mark.usefixtures("one_gpu")


@pytest.mark.parametrize("target", ["gpu", "gpu-python"])
def test_a_plan_with_its_passport_and_report(tmp_path, trt, target):
    repository = gpu_repository(tmp_path / "models", target)
    (outcome,) = run(repository, trt)
    folder = repository / "shop_dnn" / "1"
    assert (outcome.model, outcome.folder, outcome.built) == ("shop_dnn", folder, True)
    passport = passports.read(folder)
    assert passports.check(folder, Here(trt.__version__, H200)) is None
    assert (passport.tensorrt, passport.gpu, passport.driver) == (trt.__version__, H200, "580.159.04")
    assert passport.precision == ("obey" if trt.number == 8 else "strongly_typed")
    assert (passport.users, passport.buckets) == (6, (4, 16))
    assert passport.profile["items"].min == (1, 4, 9)
    assert passport.profile["items"].max == (6, 16, 9)
    report = json.loads((folder / "engine_report.json").read_text())
    assert report["layer_count"] == 4
    assert report["layers_by_precision"] == {"FP32": 3, "FP16": 1}
    assert report["device_memory_bytes"] == 3 << 20
    assert report["wanted_fp32"] == ["large"]
    (warning,) = report["warnings"]
    assert warning == "the plan was not executed: the CUDA runtime library cannot be loaded"
    assert {path.name for path in folder.iterdir()} == {
        *("model.onnx", "BUILD_PLAN.txt", "model.plan", "passport.json", "engine_report.json"),
        *(("model.py", "bireme_runtime") if target == "gpu-python" else ()),
    }


def test_types_are_imposed_as_each_version_wants(tmp_path, trt):
    run(gpu_repository(tmp_path / "models"), trt)
    (config,), (network,) = trt.configs, trt.networks
    constrained = {layer.name: layer for layer in network.layers if layer.precision is not None}
    assert "tf32" not in config.flags
    if trt.number == 8:
        assert network.flags == 1
        assert config.flags == {"fp16", "obey"}
        assert list(constrained) == ["large"]
        assert constrained["large"].precision is DataType.FLOAT
        assert constrained["large"].output_types == {0: DataType.FLOAT}
        assert config.features == {"sharing"}
    else:
        assert network.flags == (2 if trt.number == 10 else 0)
        assert config.flags == set()
        assert not constrained


def test_without_the_package_onnx_tensorrts_own_types_decide(tmp_path, monkeypatch):
    from bireme.engine import tensorrt_builder
    from bireme.engine.onnx_nodes import Nodes

    trt = FakeTensorRT("8.6.0")
    monkeypatch.setattr(tensorrt_builder, "read_nodes", lambda content: Nodes())
    run(gpu_repository(tmp_path / "models"), trt)
    assert [layer.name for layer in trt.networks[0].layers if layer.precision] == ["large"]


def test_a_network_without_fp16_gets_no_fp16(tmp_path):
    trt = FakeTensorRT("8.6.0")
    text = MIXED.replace("float16[", "float[").replace("Cast<to = 1>", "Identity")
    (outcome,) = run(gpu_repository(tmp_path / "models", text=text, handover="float32"), trt)
    assert outcome.passport.precision == "fp32"
    assert trt.configs[0].flags == set()


def test_options_reach_the_builder_and_the_passport(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    run(repository, trt, options=Options(workspace_mb=64, level=2, tf32=True))
    (config,) = trt.configs
    assert config.limits == {"workspace": 64 << 20}
    assert config.builder_optimization_level == 2
    assert "tf32" in config.flags
    assert passports.read(repository / "shop_dnn/1").flags == {"workspace_mb": 64, "level": 2, "tf32": True}


def test_timings_are_kept_by_version_and_gpu(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    run(repository, trt)
    (cache,) = (tmp_path / "cache/bireme").iterdir()
    assert cache.name == f"tensorrt-{trt.__version__}_NVIDIA_H200_9.0.timing"
    assert cache.read_bytes() == b"timed"
    run(repository, trt, force=True)
    assert cache.read_bytes() == b"timedtimed"
    trt.refuse_cache = True
    run(repository, trt, force=True)
    assert cache.read_bytes() == b"timed"  # what does not fit is started anew
    run(repository, trt, force=True, timing_cache="none")
    assert cache.read_bytes() == b"timed"


def test_what_is_up_to_date_is_not_built_again(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    run(repository, trt)
    (again,) = run(repository, trt)
    assert (again.built, len(trt.configs)) == (False, 1)
    assert again.report["layer_count"] == 4
    run(repository, trt, force=True)
    assert len(trt.configs) == 2
    run(repository, trt, options=Options(level=1))
    assert len(trt.configs) == 3
    plan = repository / "shop_dnn/1/model.plan"
    plan.write_bytes(plan.read_bytes()[:-1])
    (mended,) = run(repository, trt, options=Options(level=1))
    assert mended.built
    other = FakeTensorRT("10.4.0")
    (newer,) = run(repository, other, options=Options(level=1))
    assert newer.built


_KILLED = """
import os, sys
from pathlib import Path
from bireme.engine.swap_plan import swap_plan
from bireme_runtime import passport as passports
folder, after = Path(sys.argv[1]), int(sys.argv[2])
replace = Path.replace
done = []
def dying(self, target):
    if len(done) == after:
        os.kill(os.getpid(), 9)
    done.append(target)
    return replace(self, target)
Path.replace = dying
import dataclasses
old = passports.read(folder)
swap_plan(folder, b"new plan", dataclasses.replace(old, plan=passports.described(b"new plan")), {})
"""


@pytest.mark.parametrize(("after", "serves"), [(0, "old"), (1, None), (2, "new")])
def test_killed_in_between_no_plan_is_served_with_anothers_passport(tmp_path, after, serves):
    repository = gpu_repository(tmp_path / "models")
    trt = FakeTensorRT("8.6.0")
    run(repository, trt)
    folder = repository / "shop_dnn/1"
    old = (folder / "model.plan").read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(folder), str(after)], env=os.environ, check=False
    )
    assert done.returncode == -9
    refusal = passports.check(folder, Here("8.6.0", H200))
    if serves is None:
        assert refusal is not None
        assert "bireme engine" in refusal.remedy
    else:
        assert refusal is None
        assert (folder / "model.plan").read_bytes() == (old if serves == "old" else b"new plan")
    (mended,) = run(repository, trt, force=serves == "new")
    assert mended.built == (serves != "old")
    assert passports.check(folder, Here("8.6.0", H200)) is None
