"""The precision record: clicks that can be learnt, a table and a picture that say what was found."""

from __future__ import annotations

from io import StringIO
from typing import Any

import numpy as np
from rich.console import Console

from bireme.compiler.fp16.ranking import auc
from half.clicks import MOST_VIEWS, make_clicks, to_request
from half.plot import draw
from precision import _quality, table


def test_clicks_are_drawn_in_one_world_for_other_requests():
    first, again, other = make_clicks(40, 50, 1), make_clicks(40, 50, 1), make_clicks(40, 50, 2)
    np.testing.assert_array_equal(first.labels["click"], again.labels["click"])
    assert (first.user["user"] != other.user["user"]).any()
    shops = dict(zip(first.items["item"].ravel(), first.items["shop"].ravel(), strict=True))
    both = [(i, s) for i, s in zip(other.items["item"].ravel(), other.items["shop"].ravel(), strict=True)]
    assert all(shops.get(item, shop) == shop for item, shop in both)
    assert MOST_VIEWS / 2 < first.items["views"].max() <= MOST_VIEWS
    assert not (first.labels["buy"] & ~first.labels["click"]).any()


def test_what_clicks_depend_on_is_in_the_features():
    clicks = make_clicks(400, 50, 1)
    assert auc(-clicks.items["price"], clicks.labels["click"]) > 0.55


def test_a_request_holds_what_the_model_reads():
    request = to_request(make_clicks(2, 5, 1), 1, {"user", "price"}, {"click"})
    assert (set(request["user"]), set(request["items"]), set(request["labels"])) == (
        {"user"},
        {"price"},
        {"click"},
    )
    assert len(request["items"]["price"]) == len(request["labels"]["click"]) == 5


def result(lost: bool) -> dict[str, Any]:
    clicks = make_clicks(20, 30, 1)
    rng = np.random.default_rng(0)
    scores = [rng.random(30) for _ in range(20)]
    close = [part + rng.normal(size=30) * 1e-4 for part in scores]
    broken = [np.where(np.arange(30) < 3, np.nan, part) for part in scores]
    precision = {
        "kept_fp32": [{}], "computing_nodes": 9, "flops_kept_fp32": 0.25,
        "handover": "float32", "evaluations": 7,
    }  # fmt: skip
    typed = {"precision": precision, "tasks": _quality({"click": scores}, {"click": close}, clicks)}
    naive = _quality({"click": scores}, {"click": broken if lost else close}, clicks)
    exact = _quality({"click": scores}, {"click": scores}, clicks)
    rest = {"fp32": {"tasks": exact}, "everything_fp16": {"tasks": naive}}
    return {"model": "tower", "searched": typed, "strict": typed, **rest}


def test_table_and_picture_show_numbers_and_lost_scores():
    results = [result(lost=False), result(lost=True)]
    naive = results[1]["everything_fp16"]["tasks"]["click"]
    assert (naive["lost_scores"], naive["auc"], naive["auc_after"]) == (60, None, None)
    assert 0 < results[0]["searched"]["tasks"]["click"]["auc"] < 0.01
    assert results[0]["fp32"]["tasks"]["click"]["auc"] == 0
    screen = Console(width=220, file=StringIO())
    screen.print(table(results))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "60 scores lost" in shown
    assert "1 of 9" in shown
    figure = draw(results, 30, 600)
    texts = {text.get_text() for panel in figure.axes for text in panel.texts}
    assert {"scores lost", "1 of 9, 25% of the products, hand-over", "limit 1e-4"} <= texts
