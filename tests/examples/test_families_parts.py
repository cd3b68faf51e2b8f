"""What the family table is made with: catalogue, made-up requests, the table itself."""

import json

import numpy as np
import pytest
from catalogue import GROUPS, group_of, load_module, names
from family_table import as_json, as_markdown, one_line
from requests_for import make_request
from subject_parts import ids, numbers, randomise, words

from families import main

GOOD = {
    "status": "builds",
    "tells": "a | b",
    "difference": 2.5e-7,
    "user_columns": 3,
    "item_columns": 4,
    "tensors": 2,
    "flops_rowwise": 2_500_000,
    "flops": 1_000_000,
    "outside": ["tensorflow: title"],
}
BAD = {"status": "refused", "reason": "op X (node 'y') is\nnot known"}


def test_names_are_unique_and_say_which_group_they_are_of():
    assert len(set(names())) == len(names()) >= 60
    assert group_of("tf_numbers").module == "plain_tensorflow"


@pytest.mark.parametrize("group", [g for g in GROUPS if not g.packages], ids=lambda g: g.module)
def test_a_module_makes_what_the_catalogue_lists(group):
    assert tuple(load_module(group.subjects[0]).MODELS) == group.subjects


def test_requests_have_the_form_that_was_asked_for():
    draws = {
        "age": numbers(1, 2),
        "seen": ids(5, 9, 6, pad=0),
        "tags": words(["a"], [0, 3]),
        "name": words(["known"], unknown=0.5),
    }
    request = make_request(draws, ("age", "seen"), 200, seed=1)
    assert request == make_request(draws, ("age", "seen"), 200, seed=1)
    assert request != make_request(draws, ("age", "seen"), 200, seed=2)
    assert 1 <= request["user"]["age"] <= 2
    seen = request["user"]["seen"]
    assert len(seen) == 6
    real = [value for value in seen if value]
    assert seen == real + [0] * (6 - len(real))
    assert all(5 <= value < 9 for value in real)
    assert len({len(tags) for tags in request["items"]["tags"]}) == 1
    found = request["items"]["name"]
    assert len(found) == 200
    assert {"known", "", "ключ"} <= set(found)
    assert json.loads(json.dumps(request)) == request


def test_weights_are_random_and_statistics_positive():
    class Variable:
        dtype = "float32"

        def __init__(self, path, *shape):
            self.path, self.shape = path, shape

        def assign(self, values):
            self.values = values

    kernel, variance, bias = (
        Variable("dense/kernel", 400, 30),
        Variable("bn/variance", 50),
        Variable("bias", 9),
    )
    counter, float_of_no_rank = Variable("step"), Variable("scale")
    counter.dtype = "int64"
    randomise([kernel, variance, bias, counter, float_of_no_rank])
    assert kernel.values.std() == pytest.approx(1.2 / 20, rel=0.1)
    assert (variance.values > 0.7).all()
    assert (bias.values != 0).all()
    assert float_of_no_rank.values.shape == ()
    assert not hasattr(counter, "values")
    assert kernel.values.dtype == np.float32


def test_the_table_says_what_was_measured_and_why_a_model_is_refused():
    results = {"tf_numbers": BAD, "deepctr_DIN": GOOD}
    text = as_markdown(results)
    assert "1 of 2 models build" in text
    assert "| DIN (a \\| b) | yes | 2.5e-07 | 3 + 4 in 2 | 2.50 → 1.00 | tensorflow: title |" in text
    assert "| numbers | refused: op X (node 'y') is not known |" in text
    assert text.index("DIN") < text.index("| numbers")
    assert list(json.loads(as_json(results))) == ["deepctr_DIN", "tf_numbers"]
    assert one_line(GOOD) == "builds, difference 2.5e-07"
    assert one_line(BAD) == "refused: op X (node 'y') is not known"


def test_a_subject_that_does_not_exist_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["families.py", "--only", "keras_Nothing"])
    with pytest.raises(SystemExit):
        main()
    assert "no such subject" in capsys.readouterr().err
