"""What TensorRT's inspector says, and what is made of it: pure functions, on JSON in the form of 8.6."""

from __future__ import annotations

import pytest

from bireme.engine.layers import layer_report, layers_of, spoiled_fp32
from bireme.engine.options import Built


def tensor(name: str, kind: str, *dims: int) -> dict[str, object]:
    return {"Name": name, "Dimensions": list(dims), "Format/Datatype": kind}


HALF, FULL = "Row major linear FP16 format", "Row major linear FP32"
INSPECTED = {
    "Layers": [
        {
            "Name": "MatMul_3 + Add_4",
            "LayerType": "CaskGemm",
            "TacticName": "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n",
            "Inputs": [tensor("items", HALF, 4, 64, 8)],
            "Outputs": [tensor("hidden", HALF, 4, 64, 16)],
        },
        {
            "Name": "PWN(PWN(Sigmoid_5), Mul_6)",
            "LayerType": "PointWiseV2",
            "TacticName": "generated",
            "Inputs": [tensor("hidden", HALF, 4, 64, 16)],
            "Outputs": [tensor("score", FULL, 4, 64)],
        },
        {"Name": "{ForeignNode[a...b]}", "LayerType": "Myelin", "Outputs": [tensor("state", HALF, -1, 8)]},
    ]
}


def built(inspected: dict[str, object] | None) -> Built:
    return Built(b"plan", "8.6.0", "obey", "tensorrt python", ("Add_4",), inspected=inspected)


def test_the_report_counts() -> None:
    report = layer_report(built(INSPECTED))
    assert report["layer_count"] == 3
    assert report["layers_by_precision"] == {"FP16": 2, "FP32": 1}
    assert report["layers_by_type"] == {"CaskGemm": 1, "PointWiseV2": 1, "Myelin": 1}
    assert report["kernels"] == 2
    assert report["largest_tensors"] == [
        {"tensor": "hidden", "type": "FP16", "bytes": 4 * 64 * 16 * 2},
        {"tensor": "score", "type": "FP32", "bytes": 4 * 64 * 4},
    ]
    assert (report["plan_bytes"], report["wanted_fp32"]) == (4, ["Add_4"])


def test_what_the_tool_could_not_tell_is_null() -> None:
    report = layer_report(built(None))
    assert [report[name] for name in ("layer_count", "layers_by_precision", "kernels")] == [None] * 3
    report = layer_report(built({"Layers": ["MatMul_3", "Add_4"]}))  # verbosity: names only
    assert (report["layer_count"], report["layers_by_precision"]) == (2, None)


def test_types_that_8_6_does_not_tell_are_no_precision() -> None:
    """As an H200 answered: whatever shapes its context had been given."""
    unknown = "N/A due to dynamic shapes"
    layer = {"Name": "{ForeignNode[w1...Cast]}", "LayerType": "Myelin", "TacticValue": "0x0000000000000000"}
    report = layer_report(built({"Layers": [{**layer, "Outputs": [tensor("click", unknown, -1, -1)]}]}))
    assert (report["layer_count"], report["layers_by_type"]) == (1, {"Myelin": 1})
    assert (report["layers_by_precision"], report["largest_tensors"]) == (None, None)


def test_names_list_the_nodes_of_a_fused_layer() -> None:
    nodes = [layer.nodes for layer in layers_of(INSPECTED)]
    assert nodes == [{"MatMul_3", "Add_4"}, {"Sigmoid_5", "Mul_6"}, set()]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (("MatMul_3", "Add_4"), ["MatMul_3 + Add_4"]),
        (("Add_4",), []),  # fused with one that may be FP16
        (("Sigmoid_5", "Mul_6"), []),  # no FP16 kernel
        (("a", "b"), []),  # inside of a group that is not shown
        ((), []),
    ],
)
def test_only_proof_counts_against_a_layer(wanted: tuple[str, ...], found: list[str]) -> None:
    assert [name for name, _ in spoiled_fp32(layers_of(INSPECTED), wanted)] == found
