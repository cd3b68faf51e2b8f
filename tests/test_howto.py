"""The start commands that `make repo` prints."""

from __future__ import annotations

from pathlib import Path

from bireme.howto import howto


def test_both_ways_are_printed_with_what_the_container_needs():
    text = howto("obd", Path("model_repository"), "cpu", Path(".venv/bin"))
    assert ".venv/bin/tritonserver --model-repository=model_repository" in text
    assert '-v "$PWD/model_repository:/models:ro"' in text
    assert "--model-load-thread-count=1" in text
    assert "numpy" in text
    assert "onnxruntime" in text


def test_an_absolute_repository_is_mounted_as_it_is_and_a_gpu_needs_its_engine(tmp_path):
    text = howto("obd", tmp_path, "gpu", Path("bin"))
    assert f'-v "{tmp_path}:/models:ro"' in text
    assert f"{tmp_path}/obd_dnn/1/BUILD_PLAN.txt" in text
    assert "--gpus=1" in text
    assert "bin/tritonserver" not in text  # the embedded server has no TensorRT backend


def test_a_plan_in_a_python_model_is_served_here_once_its_engine_is_built():
    text = howto("obd", Path("model_repository"), "gpu-python", Path("bin"))
    engine, serve = (
        text.index(f"bin/bireme {verb} --repository model_repository") for verb in ("engine", "serve")
    )
    assert engine < serve
    assert "tensorrt" in text
    assert "--model-load-thread-count=1" in text
