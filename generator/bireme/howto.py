"""How to start tritonserver on what was built: here, and in NVIDIA's container."""

from __future__ import annotations

from pathlib import Path

from bireme.spec import Target

__all__ = ["howto"]

_CPU_HERE = """\
Serve it here, with the real tritonserver that the PyPI package nvidia-pytriton carries:

    {bin}/bireme serve --repository {repository}        # also ranks the example request
    {bin}/tritonserver --model-repository={repository}  # the bare server; takes all its flags"""

_GPU_HERE = """\
On the machine with the GPU that will serve it, build its engine, then serve it with the real tritonserver
that the PyPI package nvidia-pytriton carries. Its Python needs the package tensorrt:

    {bin}/bireme engine --repository {repository}
    {bin}/bireme serve --repository {repository}        # also ranks the example request
    {bin}/tritonserver --model-repository={repository}  # the bare server; takes all its flags"""

#: Target → how to start it with what bireme brings along; a `tensorrt_plan` needs NVIDIA's C++ backend.
_HERE: dict[Target, list[str]] = {"cpu": [_CPU_HERE], "gpu": [], "gpu-python": [_GPU_HERE]}

_CONTAINER = """\
Serve it in NVIDIA's container:

    docker run --rm --shm-size=1g -p 8000-8002:8000-8002 -v "{mount}:/models:ro" IMAGE \\
        tritonserver --model-repository=/models --model-load-thread-count=1

IMAGE: nvcr.io/nvidia/tritonserver:24.10-py3 or newer{needs}"""

_NEEDS: dict[Target, str] = {
    "cpu": """, with these installed in its Python:
    numpy        below 2 for 24.10, whose Python backend predates numpy 2
    onnxruntime  runs the dense network""",
    "gpu": """ started with --gpus=1, with numpy (below 2 for 24.10)
installed in its Python. Before that, with the image's TensorRT, on the GPU that will serve it:

    bireme engine --repository {repository}

(or, without bireme, as {repository}/{model}_dnn/1/BUILD_PLAN.txt says)""",
    "gpu-python": """ started with --gpus=1, with numpy (below 2 for 24.10)
and tensorrt installed in its Python, and with the engine built before by the same version of tensorrt""",
}


def howto(model: str, repository: Path, target: Target, bin_folder: Path) -> str:
    """Start commands for a repository.

    Args:
        model: name of the ensemble.
        repository: the model repository.
        target: what it was built for.
        bin_folder: where the `bireme` and `tritonserver` commands are.
    """
    mount = repository if repository.is_absolute() else f"$PWD/{repository}"
    values = {"repository": repository, "mount": mount, "model": model, "bin": bin_folder}
    parts = [text.format(**values) for text in _HERE[target]]
    parts.append(_CONTAINER.format(**values, needs=_NEEDS[target].format(**values)))
    return "\n\n".join(parts)
