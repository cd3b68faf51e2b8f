"""Passports of plans: what is refused, and in which words. Plans are stand-ins; nothing here reads one."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bireme_runtime import passport as passports
from bireme_runtime.hashes import file_sha256
from bireme_runtime.passport import Gpu, Here, Needs, Passport, Shapes, check

H200 = Gpu("NVIDIA H200", "9.0", 143771)
HERE = Here("8.6.0", H200)
NEEDS = Needs({"user": [8], "items": [-1, 4]}, 16, (64, 128))


@pytest.fixture
def folder(tmp_path):
    """A version folder with a plan, the ONNX and a passport that fits."""
    made = tmp_path / "repository" / "shop_dnn" / "1"
    made.mkdir(parents=True)
    (made / "model.plan").write_bytes(b"plan" * 1000)
    (made / "model.onnx").write_bytes(b"onnx")
    a_passport(made).write(made / "passport.json")
    return made


def a_passport(folder, **changes):
    values = {
        "model": "shop_dnn",
        "plan": {"sha256": file_sha256(folder / "model.plan"), "bytes": 4000},
        "onnx": {"sha256": file_sha256(folder / "model.onnx")},
        "tensorrt": "8.6.0",
        "gpu": H200,
        "driver": "580.159.04",
        "profile": {
            "user": Shapes((1, 8), (4, 8), (16, 8)),
            "items": Shapes((1, 64, 4), (4, 64, 4), (16, 128, 4)),
        },
        "users": 16,
        "buckets": (64, 128),
        "precision": "obey",
        "built_by": "tensorrt python",
        "flags": {"workspace_mb": None},
    }
    return Passport(**(values | changes))


def test_a_passport_is_read_as_it_was_written(folder):
    assert passports.read(folder) == a_passport(folder)
    raw = json.loads((folder / "passport.json").read_text())
    assert raw["format"] == 1
    assert raw["profile"]["items"] == {"min": [1, 64, 4], "opt": [4, 64, 4], "max": [16, 128, 4]}
    assert raw["gpu"]["compute_capability"] == "9.0"


def test_what_fits_is_served(folder):
    assert check(folder, HERE, NEEDS) is None
    assert check(folder, Here(), None) is None  # nothing known here: nothing to refuse
    assert check(folder, Here("8.6.0.post1", None), Needs(NEEDS.dims, 3, (128,))) is None


def test_the_onnx_may_stay_behind(folder):
    (folder / "model.onnx").unlink()
    assert check(folder, HERE, NEEDS) is None


def damage_truncate(folder):
    (folder / "model.plan").write_bytes(b"plan" * 999)


def damage_flip(folder):
    (folder / "model.plan").write_bytes(b"plan" * 999 + b"plaN")


def damage_longer(folder):
    (folder / "model.plan").write_bytes(b"plan" * 1001)


def damage_no_plan(folder):
    (folder / "model.plan").unlink()


def damage_no_passport(folder):
    (folder / "passport.json").unlink()


def damage_onnx(folder):
    (folder / "model.onnx").write_bytes(b"another")


def damage_json(folder):
    (folder / "passport.json").write_text("{")


def damage_field(folder):
    raw = json.loads((folder / "passport.json").read_text())
    del raw["gpu"]["name"]
    (folder / "passport.json").write_text(json.dumps(raw))


def damage_format(folder):
    raw = json.loads((folder / "passport.json").read_text())
    (folder / "passport.json").write_text(json.dumps(raw | {"format": 2}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_truncate, "is truncated: it has 3,996 bytes, its passport says 4,000"),
        (damage_flip, "is damaged or was replaced"),
        (damage_longer, "is not the plan of its passport"),
        (damage_no_plan, "model.plan is missing"),
        (damage_no_passport, "has no passport.json beside it"),
        (damage_onnx, "was built from another network than the model.onnx beside it"),
        (damage_json, "passport.json is not JSON"),
        (damage_field, "passport.json is no passport"),
        (damage_format, "has format 2; this version of bireme reads 1"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(folder, damage, words):
    damage(folder)
    refused = check(folder, HERE, NEEDS)
    assert refused is not None
    assert words in refused.message
    assert str(folder) in refused.message
    assert f"bireme engine -r {folder.parent.parent} --model shop_dnn" in refused.remedy


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (Here("8.6.1", H200), "built by TensorRT 8.6.0 and cannot be read by TensorRT 8.6.1"),
        (Here("10.3.0", None), "cannot be read by TensorRT 10.3.0"),
        (Here(None, Gpu("NVIDIA A10", "8.6", 23028)), "here is NVIDIA A10 (compute capability 8.6)"),
        (Here(None, dataclasses.replace(H200, name="NVIDIA H100 80GB HBM3")), "here is NVIDIA H100"),
    ],
)
def test_another_machine_is_refused(folder, here, words):
    refused = check(folder, here, NEEDS)
    assert refused is not None
    assert words in refused.message


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(NEEDS.dims, 16, (64, 256)), "users 1, bucket 256, which the config.pbtxt needs"),
        (Needs(NEEDS.dims, 16, (32, 128)), "'items' from 1x64x4 to 16x128x4, not 1x32x4"),
        (Needs(NEEDS.dims, 17, (64,)), "not built for users 17, bucket 64"),
        (Needs({"user": [9], "items": [-1, 4]}, 16, (64,)), "'user' from 1x8 to 16x8, not 1x9"),
        (Needs({"items": [-1, 4]}, 16, (64,)), "do not have the same inputs: user"),
    ],
)
def test_a_profile_that_does_not_cover_the_config_is_refused(folder, needs, words):
    refused = check(folder, HERE, needs)
    assert refused is not None
    assert words in refused.message


def test_a_network_without_candidates(folder):
    one = a_passport(folder, profile={"user": Shapes((1, 8), (4, 8), (16, 8))}, buckets=())
    assert passports.refusal(one, folder, HERE, Needs({"user": [8]}, 16, ())) is None
    refused = passports.refusal(one, folder, HERE, Needs({"user": [8]}, 32, ()))
    assert refused is not None
    assert "not built for users 32, which the config.pbtxt needs" in refused.message


def test_a_write_that_fails_leaves_what_was_there(folder, monkeypatch):
    before = (folder / "passport.json").read_bytes()

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(folder), "replace", fail)
    with pytest.raises(OSError, match="No space"):
        a_passport(folder, driver="999").write(folder / "passport.json")
    assert (folder / "passport.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "model.plan", "passport.json"]
