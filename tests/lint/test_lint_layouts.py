"""Layouts of public repositories, written anew from what they contain, and what is found in them.

Only facts are taken over: which models, backends, kinds, dims and settings. Names are our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from lint_repositories import Files, write

from bireme.lint.release import read_release
from bireme.lint.repository import lint_repository
from bireme.lint.settings import Settings

Tensors = Mapping[str, tuple[str, str]]
FILES = {"python": "model.py", "tensorrt_plan": "model.plan", "onnxruntime": "model.onnx"}
CPU, GPU = "instance_group { kind: KIND_CPU }\n", "instance_group { kind: KIND_GPU }\n"


def model(name: str, runs: str, batch: int, inputs: Tensors, outputs: Tensors, more: str = "") -> Files:
    """A model: tensors are name → (type, dims)."""
    head = f'name: "{name}"\n{"platform" if runs in ("tensorrt_plan", "ensemble") else "backend"}: "{runs}"\n'
    tensors = "".join(
        f'{way} {{ name: "{tensor}" data_type: TYPE_{kind} dims: [ {dims} ] }}\n'
        for way, listed in (("input", inputs), ("output", outputs))
        for tensor, (kind, dims) in listed.items()
    )
    config = f"{head}max_batch_size: {batch}\n{tensors}{more}"
    return {f"{name}/config.pbtxt": config, f"{name}/1/{FILES.get(runs, '.keep')}": "x"}


def step(name: str, inputs: Mapping[str, str], outputs: Mapping[str, str], version: int = -1) -> str:
    maps = "".join(
        f' {way} {{ key: "{inner}" value: "{outer}" }}'
        for way, listed in (("input_map", inputs), ("output_map", outputs))
        for inner, outer in listed.items()
    )
    return f'  step {{ model_name: "{name}" model_version: {version}{maps} }}\n'


def ensemble(name: str, batch: int, inputs: Tensors, outputs: Tensors, steps: Sequence[str]) -> Files:
    scheduling = f"ensemble_scheduling {{\n{''.join(steps)}}}\n"
    return model(name, "ensemble", batch, inputs, outputs, scheduling)


IMAGE, PIXELS, LOGITS = ("UINT8", "-1"), ("FP32", "3, 224, 224"), ("FP32", "1000")
OCR_DETECT = {"image": ("FP32", "-1, -1, 3")}
DECODED = {"samples": ("INT32", "-1"), "pause": ("UINT32", "-1"), "wait": ("UINT32", "1")}


@dataclass(frozen=True)
class Layout:
    """One repository.

    Args:
        source: where the layout is from.
        files: our own writing of it.
        found: (code, place) of what lint finds.
    """

    source: str
    files: Files
    found: set[tuple[str, str]]


LAYOUTS = (
    Layout(
        "triton-inference-server/python_backend: preprocessing on the CPU before a TensorRT classifier",
        {
            **model("decode", "python", 256, {"raw": IMAGE}, {"pixels": PIXELS}, CPU),
            **model("classify", "tensorrt_plan", 256, {"in": ("FP32", "3, -1, -1")}, {"out": LOGITS}),
            **ensemble(
                "both",
                256,
                {"IN": IMAGE},
                {"OUT": LOGITS},
                [
                    step("decode", {"raw": "IN"}, {"pixels": "p"}),
                    step("classify", {"in": "p"}, {"out": "OUT"}),
                ],
            ),
        },
        {("S06", "classify: instance_group"), ("M03", "decode: instance_group")},
    ),
    Layout(
        "triton-inference-server/tutorials, part 5: five steps; one output was renamed in the model only",
        {
            **model("prepare", "python", 256, {"a": IMAGE}, OCR_DETECT, CPU),
            **model(
                "detect",
                "onnxruntime",
                256,
                {"images": ("FP32", "-1, -1, 3")},
                {"map": ("FP32", "-1, -1, 1")},
            ),
            **model(
                "crop",
                "python",
                256,
                {"map": ("FP32", "-1, -1, 1"), "image": ("FP32", "-1, -1, 3")},
                {"crops": ("FP32", "1, 32, 100")},
                CPU,
            ),
            **model(
                "read", "onnxruntime", 256, {"in.1": ("FP32", "1, 32, 100")}, {"308": ("FP32", "26, 37")}
            ),
            **model("spell", "python", 256, {"r": ("FP32", "26, 37")}, {"text": ("STRING", "-1")}, CPU),
            **ensemble(
                "ocr",
                256,
                {"IN": IMAGE},
                {"TEXT": ("STRING", "-1")},
                [
                    step("prepare", {"a": "IN"}, {"image": "i"}),
                    step("detect", {"images": "i"}, {"map": "m"}),
                    step("crop", {"map": "m", "image": "i"}, {"crops": "c"}),
                    step("read", {"in.1": "c"}, {"307": "r"}),
                    step("spell", {"r": "r"}, {"text": "TEXT"}),
                ],
            ),
        },
        {
            ("S06", "detect: instance_group"),
            ("S06", "read: instance_group"),
            ("E02", "ocr: ensemble_scheduling.step[3].output_map[307]"),
            ("E07", "ocr: ensemble_scheduling.step[1].input_map[images]"),
            ("E07", "ocr: ensemble_scheduling.step[2].input_map[image]"),
            ("E07", "ocr: ensemble_scheduling.step[2].input_map[map]"),
        },
    ),
    Layout(
        "triton-inference-server/tutorials, HuggingFace: a transformer behind a Python step; versions pinned",
        {
            **model(
                "tokens",
                "python",
                8,
                {"image": ("FP32", "-1, -1, -1")},
                {"values": ("FP32", "-1, -1, -1")},
                GPU,
            ),
            **ensemble(
                "all",
                4,
                {"image": ("FP32", "-1, -1, -1")},
                {"state": ("FP32", "-1, -1")},
                [
                    step("tokens", {"image": "image"}, {"values": "v"}, 1),
                    step("vit", {"values": "v"}, {"state": "state"}, 1),
                ],
            ),
        },
        {("E01", "all: ensemble_scheduling.step[1].model_name")},
    ),
    Layout(
        "NVIDIA/DeepLearningExamples, Jasper: acoustic model as a plan, decoder in ONNX with cuda settings",
        {
            **model("features", "onnxruntime", 8, {"audio": ("FP16", "-1")}, {"f": ("FP16", "64, -1")}, GPU),
            **model(
                "acoustic",
                "tensorrt_plan",
                8,
                {"f": ("FP16", "64, -1")},
                {"p": ("FP16", "-1, 29")},
                "instance_group { count: 1 gpus: 0 kind: KIND_GPU }\n",
            ),
            **model(
                "decoder",
                "onnxruntime",
                8,
                {"p": ("FP16", "-1, 29")},
                {"t": ("INT32", "-1")},
                "optimization { cuda { graphs: 0 } }\n" + GPU,
            ),
            **ensemble(
                "speech",
                8,
                {"SIGNAL": ("FP16", "-1")},
                {"TEXT": ("INT32", "-1")},
                [
                    step("features", {"audio": "SIGNAL"}, {"f": "f"}),
                    step("acoustic", {"f": "f"}, {"p": "p"}),
                    step("decoder", {"p": "p"}, {"t": "TEXT"}),
                ],
            ),
        },
        {("S05", "decoder: optimization.cuda")},
    ),
    Layout(
        "triton-inference-server/tutorials, part 4: ONNX Runtime with TensorRT as its accelerator, warmed up",
        model(
            "read",
            "onnxruntime",
            16,
            {"in.1": ("FP32", "1, 32, 100")},
            {"308": ("FP32", "26, 37")},
            'model_warmup { name: "w" batch_size: 16 inputs { key: "in.1" value {\n'
            "  data_type: TYPE_FP32 dims: [ 1, 32, 100 ] zero_data: true } } }\n"
            "optimization { graph { level: 1 } execution_accelerators {\n"
            '  gpu_execution_accelerator [ { name: "tensorrt"\n'
            '    parameters { key: "precision_mode" value: "FP16" } } ] } }\n',
        ),
        {("S06", "read: instance_group")},
    ),
    Layout(
        "triton-inference-server/python_backend: a decoupled model that repeats its input",
        model(
            "repeat",
            "python",
            0,
            DECODED,
            {"out": ("INT32", "1"), "at": ("UINT32", "1")},
            "model_transaction_policy { decoupled: True }\n",
        ),
        {("S18", "repeat: model_transaction_policy.decoupled"), ("S06", "repeat: instance_group")},
    ),
)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.source.partition(":")[0].split("/")[-1])
def test_what_is_found_in_a_public_layout(tmp_path: Path, layout: Layout) -> None:
    findings = lint_repository(write(tmp_path, layout.files), Settings(triton=read_release("24.10")))
    assert {(finding.code, finding.where) for finding in findings} == layout.found
