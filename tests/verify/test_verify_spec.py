"""`verify` refuses a repository that another spec built."""

from __future__ import annotations

import pytest

from bireme.errors import VerifyError
from bireme.spec import BuildSpec
from bireme.verify.verify import _check_spec

SPEC = BuildSpec(model="shop", saved_model="x", user=("age",), buckets=(20, 80), defaults={"age": 3})


def manifest(spec: BuildSpec) -> dict:
    return {"source": {"spec": spec.served()}}


def test_the_same_spec_passes_wherever_its_files_lie():
    moved = SPEC.model_copy(update={"saved_model": "elsewhere", "samples": "other.jsonl"})
    _check_spec(moved, manifest(SPEC))


@pytest.mark.parametrize(
    "change", [{"buckets": (20, 40)}, {"defaults": {"age": 4}}, {"user": ("age", "city")}, {"max_users": 2}]
)
def test_a_change_of_what_is_served_is_named(change):
    (name,) = change
    with pytest.raises(VerifyError, match=f"shop: {name}: .*bireme build"):
        _check_spec(SPEC.model_copy(update=change), manifest(SPEC))


def test_a_repository_that_does_not_know_its_spec_is_refused():
    with pytest.raises(VerifyError):
        _check_spec(SPEC, {"source": {}})
