"""`bireme build` and `bireme inspect` as users run them: equal bytes every time,
or an error and no change.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme import cli
from bireme.build import build
from bireme.emitter.manifest import read_manifest
from bireme.errors import CompileError, SpecError
from bireme.inspect import inspect_model
from bireme.lint.repository import lint_repository

WORDS = [f"word {k}" for k in range(50)]


def export(folder: Path, seed: int = 0) -> None:
    """A model with a vocabulary, a hash, a pooled sequence, numbers and two tasks."""
    from bireme.compiler.graph import tf  # sets TensorFlow's options before it is imported

    rng = np.random.default_rng(seed)
    module = tf.Module()
    source = tf.lookup.KeyValueTensorInitializer(
        tf.constant(WORDS), tf.range(1, 1 + len(WORDS), dtype=tf.int64)
    )
    module.words = tf.lookup.StaticHashTable(source, 0)
    module.rows = tf.Variable(rng.normal(size=(51, 4)).astype(np.float32), name="rows")
    module.kernel = tf.Variable(rng.normal(size=(13, 2)).astype(np.float32), name="kernel")

    def call(word: Any, seen: Any, tag: Any, price: Any) -> Any:
        looked = tf.gather(module.rows, module.words.lookup(word))
        pooled = tf.reduce_sum(tf.gather(module.rows, module.words.lookup(seen)), 1)
        hashed = tf.gather(module.rows, tf.strings.to_hash_bucket_fast(tag, 51))
        x = tf.concat([looked, hashed, pooled, tf.math.log1p(price)[:, tf.newaxis]], 1)
        scores = tf.sigmoid(tf.matmul(x, module.kernel))
        return {"click": scores[:, 0], "buy": scores[:, 1]}

    shapes = {"word": [None], "seen": [None, None], "tag": [None]}
    specs = {name: tf.TensorSpec(shape, tf.string, name) for name, shape in shapes.items()}
    specs["price"] = tf.TensorSpec([None], tf.float32, "price")
    module.call = tf.function(call, autograph=False).get_concrete_function(**specs)
    tf.saved_model.save(module, str(folder), signatures=module.call)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    export(folder)
    return folder


@pytest.fixture
def make_spec(saved: Path, tmp_path: Path) -> Callable[..., Path]:
    def write(**fields: Any) -> Path:
        path = tmp_path / "bireme.yaml"
        known = {"model": "shop", "saved_model": str(saved), "user": ["seen", "word"], "buckets": [8, 32]}
        path.write_text(yaml.safe_dump(known | fields), encoding="utf-8")
        return path

    return write


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Relative path → (mode, sha256) of everything below."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def command(*words: str, seed: str = "0") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from bireme.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": seed, "COLUMNS": "200"},
    )


def test_two_processes_write_the_same_bytes(make_spec, tmp_path):
    spec = make_spec()
    running = [
        command("build", str(spec), "-r", str(tmp_path / name), "--json", seed=seed)
        for name, seed in (("first", "1"), ("second", "2"))
    ]
    reports = []
    for process in running:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        reports.append(json.loads(out))
    assert reports[0] == reports[1]
    first, second = tree(tmp_path / "first"), tree(tmp_path / "second")
    assert first == second
    assert len(first) > 10


def test_the_same_model_under_another_path_gives_the_same_bytes(make_spec, tmp_path, saved):
    import shutil

    build(make_spec(), tmp_path / "first")
    shutil.copytree(saved, tmp_path / "moved")
    build(make_spec(saved_model="moved"), tmp_path / "second")
    assert tree(tmp_path / "first") == tree(tmp_path / "second")


def test_a_change_of_the_model_changes_the_repository(make_spec, tmp_path):
    build(make_spec(), tmp_path / "first")
    export(tmp_path / "other", seed=1)
    build(make_spec(saved_model="other"), tmp_path / "first")
    build(make_spec(), tmp_path / "second")
    first, second = tree(tmp_path / "first"), tree(tmp_path / "second")
    changed = {name.split("/")[-1] for name in first if first[name] != second[name]}
    assert {"arena_float32_w4.bin", "model.onnx", "bireme.json"} <= changed


def test_progress_names_the_passes_in_order(make_spec, tmp_path):
    seen: list[str] = []
    built = build(make_spec(), tmp_path / "repository", progress=seen.append)
    # The kernel's library may have to be compiled first.
    assert [name for name in seen if "kernel" not in name] == [
        "load",
        "unroll",
        "trim",
        "fold",
        "batchnorm",
        "merge",
        "split",
        "dense",
        "user_once",
        "check",
        "emit",
    ]
    assert [folder.name for folder in built.folders] == ["shop_preprocess", "shop_dnn", "shop"]
    assert all(folder.is_dir() for folder in built.folders)
    assert built.report["tasks"] == ["buy", "click"]
    json.dumps(built.report, allow_nan=False)


def test_layout_of_the_spec_and_of_the_call(make_spec, tmp_path):
    repository = tmp_path / "repository"
    fused = build(make_spec(layout="fused"), repository)
    assert [folder.name for folder in fused.folders] == ["shop"]
    built = build(make_spec(layout="fused"), repository, layout="ensemble")
    assert [folder.name for folder in built.folders] == ["shop_preprocess", "shop_dnn", "shop"]
    assert read_manifest(repository, "shop")["layout"] == "ensemble"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "gpu"}, "shop: layout: fused is for the cpu target, not for gpu"),
        ({"target": "gpu-python"}, "shop: layout: fused is for the cpu target, not for gpu-python"),
        ({"user_ahead": True}, "shop: layout: fused has one model, and the user side ahead of time needs"),
    ],
)
def test_what_one_fused_model_cannot_do_is_refused(make_spec, tmp_path, options, message):
    with pytest.raises(SpecError, match=message) as caught:
        build(make_spec(), tmp_path / "repository", layout="fused", **options)
    assert "layout: ensemble" in caught.value.hint
    assert not (tmp_path / "repository").exists()


@pytest.mark.parametrize(("target", "captures"), [("gpu", 2 * 2 * 3 * 2), ("gpu-python", 2 * 2 * 2 * 4)])
def test_graphs_of_the_spec_reach_config_report_and_builder(make_spec, tmp_path, target, captures):
    spec = make_spec(max_users=8, graphs={"users": [1, 8]})
    built = build(spec, tmp_path, target)
    config = text_format.Parse((tmp_path / "shop_dnn/config.pbtxt").read_text(), ModelConfig())
    named = [(spec.batch_size, spec.input["items"].dim[0]) for spec in config.optimization.cuda.graph_spec]
    listed = [tuple(map(int, graph.split("x"))) for graph in _graphs(config).split(",") if graph]
    assert named + listed == [(1, 8), (1, 32), (8, 8), (8, 32)]
    report = json.loads((tmp_path / "shop/report.json").read_text())
    assert report["graphs"]["shapes"] == [[1, 8], [1, 32], [8, 8], [8, 32]]
    assert report["graphs"]["captures"] == captures
    line = f"CUDA Graphs for 1, 8 users x 2 buckets: {captures} captures on a GPU"
    assert any(note.startswith(line) for note in built.notes)
    assert line in (tmp_path / "shop/report.html").read_text()
    assert lint_repository(tmp_path) == []


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_a_build_with_the_user_side_ahead_lints_clean(make_spec, tmp_path, target):
    built = build(make_spec(), tmp_path, target, user_ahead=True)
    assert {"shop_dnn_user", "shop_dnn_slice"} <= {folder.name for folder in built.folders}
    assert lint_repository(tmp_path) == []
    if target != "cpu":  # two networks with candidates, of 5 x 2 shapes, and one of 5
        assert built.report["graphs"]["captures"] == 25 * {"gpu": 3 * 2, "gpu-python": 2 * 4}[target]


def test_a_budget_that_cannot_be_kept_is_refused_before_the_model_is_read(make_spec, tmp_path):
    with pytest.raises(SpecError, match="shop: graphs: allows 1 captures"):
        build(make_spec(saved_model="not there", graphs={"max": 1}), tmp_path / "repository", "gpu")
    assert not (tmp_path / "repository").exists()


def _graphs(config: ModelConfig) -> str:
    return config.parameters["graphs"].string_value if "graphs" in config.parameters else ""


def wrong_dense(original: Callable[..., onnx.ModelProto]) -> Callable[..., onnx.ModelProto]:
    def run(*given: Any) -> onnx.ModelProto:
        model = original(*given)
        for weight in model.graph.initializer:
            value = onnx.numpy_helper.to_array(weight)
            if value.dtype == np.float32 and value.size > 4:
                weight.CopyFrom(onnx.numpy_helper.from_array(value * np.float32(1.1), weight.name))
        return model

    return run


def test_a_build_that_fails_its_check_leaves_the_repository_as_it_was(make_spec, tmp_path, monkeypatch):
    from bireme.compiler import pipeline

    repository = tmp_path / "repository"
    build(make_spec(), repository)
    before = tree(repository)
    monkeypatch.setattr(pipeline, "user_once", wrong_dense(pipeline.user_once))
    with pytest.raises(CompileError, match="pass user_once"):
        build(make_spec(), repository)
    assert tree(repository) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bireme.yaml", "repository"]


def test_a_build_that_fails_while_writing_leaves_the_repository_as_it_was(make_spec, tmp_path, monkeypatch):
    from bireme.compiler.tables import export as exporting

    repository = tmp_path / "repository"
    build(make_spec(), repository)
    before = tree(repository)
    monkeypatch.setattr(
        exporting, "write_arena", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    with pytest.raises(CompileError, match="No space left"):
        build(make_spec(), repository)
    assert tree(repository) == before


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bireme", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"user": ["sen"]}, 2, "did you mean 'seen'?"),
        ({"outputs": {"x": "clik"}}, 3, "did you mean 'click'?"),
        ({"outputs": {"user": "click"}}, 2, "task 'user'"),
        ({"signature": "predict"}, 3, "serving_default"),
        ({"saved_model": "nowhere"}, 3, "does not exist"),
        ({"samples": "nowhere.jsonl"}, 2, "No such file"),
        ({"defaults": {"price": "cheap"}}, 2, "defaults: 'price'"),
        ({"max_users": 0}, 2, "max_users"),
        ({"colour": 1}, 2, "colour"),
        ({"user": ["seen", "word", "tag", "price"]}, 2, "nothing to rank"),
    ],
)
def test_errors_are_one_line_and_a_hint_with_the_exit_code_of_their_family(
    make_spec, tmp_path, monkeypatch, capsys, fields, code, said
):
    spec = make_spec(**fields)
    assert run_main(monkeypatch, "build", str(spec), "-r", str(tmp_path / "repository")) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert "bireme:" in captured.err
    assert "→" in captured.err
    assert "Traceback" not in captured.err + captured.out
    assert not (tmp_path / "repository").exists()


def test_a_real_process_prints_no_traceback_either(tmp_path):
    process = command("build", str(tmp_path / "nothing.yaml"))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in out + err
    assert "nothing.yaml" in err


def test_inspect_without_a_spec_shows_one_to_start_from(saved):
    report, advice = inspect_model(saved, [], "serving_default")
    assert {feature["side"] for feature in report["features"]} == {"item"}
    starter = yaml.safe_load(advice.split("\n\n", 1)[1])
    assert starter["saved_model"] == str(saved.resolve())
    assert starter["user"] == []
    names = advice.rsplit("of: ", 1)[1].strip().split(", ")
    report, _ = inspect_model(saved, names[:1], "serving_default")
    assert {feature["side"] for feature in report["features"]} == {"item", "user"}


def test_inspect_reports_tables_vocabularies_cut_and_costs(make_spec):
    report, advice = inspect_model(make_spec(), [], "serving_default")
    assert advice == ""
    (table,) = report["tables"]
    assert (table["rows"], table["width"], table["bytes"]) == (51, 4, 51 * 4 * 4)
    assert len(table["read_by"]) == 3
    transforms = {feature["name"]: feature["transforms"] for feature in report["features"]}
    assert transforms["word"] == ["vocabulary of 50 → rows [4]"]
    assert transforms["seen"] == ["vocabulary of 50 → rows [4], sum over the sequence"]
    assert transforms["tag"] == ["FarmHash64 mod 51 → rows [4]"]
    assert transforms["price"] == ["log1p"]
    user, item = report["handover"]["user_width"], report["handover"]["item_width"]
    assert (user, item) == (8, 5)
    for entry in report["requests"]:
        assert entry["bytes_to_dnn"] == 4 * (user + entry["candidates"] * item)
        assert entry["bytes_if_tiled"] == 4 * entry["candidates"] * (user + item)
        assert entry["flops"] <= entry["flops_rowwise"] == 2 * 13 * 2 * entry["candidates"]
    columns = sorted((cut["side"], *cut["columns"]) for cut in report["cut"])
    assert columns == [("item", 0, 4), ("item", 4, 5), ("user", 0, 4), ("user", 4, 8)]


def test_inspect_names_an_unknown_user_input(saved):
    with pytest.raises(SpecError) as caught:
        inspect_model(saved, ["age"], "serving_default")
    assert "'age'" in caught.value.where
    assert "price, seen, tag, word" in caught.value.hint


@pytest.mark.parametrize("name", ["model.keras", "saved_model.pb"])
def test_inspect_says_what_to_do_with_other_model_files(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    with pytest.raises(SpecError) as caught:
        inspect_model(tmp_path / name, [], "serving_default")
    assert "model.export" in caught.value.hint


def test_commands_print_what_they_found(make_spec, saved, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bireme", "inspect", str(saved), "--user", "word,seen", "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    assert json.loads(capsys.readouterr().out)["tasks"] == ["buy", "click"]
    monkeypatch.setattr(sys, "argv", ["bireme", "inspect", str(make_spec())])
    with pytest.raises(SystemExit):
        cli.main()
    assert "vocabulary of 50" in capsys.readouterr().out
