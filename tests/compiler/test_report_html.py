"""The report as a page: everything is in it, nothing from elsewhere, and the picture is readable."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest
import tensorflow as tf
from compiler_parts import made, variable
from typer.testing import CliRunner

from bireme.cli import app
from bireme.compiler.pipeline import compile_model
from bireme.compiler.reporting.report import as_data
from bireme.compiler.reporting.report_html import as_html
from bireme.compiler.reporting.report_picture import WIDTH, draw
from bireme.compiler.reporting.report_rows import MOST_ROWS, rows_of

ODD = "<script>alert(\"1\")</script> & 'x'"


class Page(HTMLParser):
    """Tags, attributes and texts of a page; an unclosed or crossed tag is an error."""

    VOID = ("meta", "rect", "line", "path")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in self.VOID
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())


@pytest.fixture(scope="module")
def report(zoo):
    return as_data(zoo("transforms").compiled)


def test_every_feature_table_boundary_and_pass_is_on_the_page(report):
    texts = set(Page(as_html(report)).texts)
    for feature in report["features"]:
        assert feature["name"] in texts
    for table in report["tables"]:
        assert {table["name"], f"{table['bytes']:,}"} <= texts
    for entry in report["cut"]:
        side = "user" if entry["side"] == "user" else "items"
        assert {f"{side}[{entry['columns'][0]}:{entry['columns'][1]}]", entry["made_of"]} <= texts
    assert {entry["pass"] for entry in report["passes"]} <= texts
    assert {f"{entry['activation_bytes_rowwise']:,}" for entry in report["requests"]} <= texts
    assert ", ".join(report["tasks"]) in texts


def test_the_page_needs_nothing_from_elsewhere(report):
    page = as_html(report)
    parsed = Page(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags)
    assert not {"src", "href", "xlink:href"} & {name for name, _ in parsed.attributes}
    assert not re.search(r"https?:|url\(|@import|//", page)


def test_equal_reports_give_equal_pages(report):
    assert as_html(report) == as_html(json.loads(json.dumps(report, sort_keys=True)))


def test_odd_names_are_text_not_markup(report):
    feature, table = report["features"][0]["name"], report["tables"][0]["name"]

    def renamed(value):
        if isinstance(value, dict):
            return {key: renamed(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [renamed(inner) for inner in value]
        return {feature: ODD, table: f"{ODD} tables"}.get(value, value) if isinstance(value, str) else value

    page = as_html({**renamed(report), "model": ODD, "tasks": [ODD, "b[red]"]})
    parsed = Page(page)
    assert "script" not in parsed.tags
    assert ODD not in page
    assert ODD in unescape(page)
    assert {ODD, f"{ODD} tables", "b[red]"} <= set(parsed.texts)


def test_where_columns_come_from(report, zoo):
    plan = zoo("transforms").compiled.plan
    known = {feature.name for feature in plan.features}
    for entry in report["cut"]:
        assert entry["features"]
        assert set(entry["features"]) <= known
        assert entry["engine"] == "native"
        assert (entry["table"] is not None) == ("→ " + str(entry["table"]) in entry["made_of"])


def test_the_dense_network_in_parts_is_the_whole(zoo):
    compiled = zoo("architectures").compiled
    report = as_data(compiled)
    parts = [report["dense"][name] for name in ("user_once", "per_candidate")]
    assert sum(part["nodes"] for part in parts) == len(compiled.dense.graph.node)
    assert sum(part["flops"] for part in parts) == report["requests"][-1]["flops"]
    assert all(part["flops"] == sum(product["flops"] for product in part["products"]) for part in parts)
    assert parts[0]["products"], "this model has layers for the user alone"


def check_places(picture):
    """Boxes lie inside the picture and do not touch; links begin and end at boxes; texts fit."""
    edges = set()
    for box in picture.boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= WIDTH
        assert box.y + box.height <= picture.height
        assert all(len(text) * 5 < box.width for text in box.lines)
        edges |= {(f"{box.x + box.width:.1f}", f"{box.middle:.1f}"), (f"{box.x:.1f}", f"{box.middle:.1f}")}
        edges.add((f"{box.x + box.width / 2:.1f}", f"{box.y + box.height:.1f}"))
        for other in picture.boxes:
            if other is not box and other.x == box.x:
                assert box.y + box.height < other.y or other.y + other.height < box.y
    for _, path in picture.links:
        assert tuple(re.findall(r"[\d.]+", path)[:2]) in edges
        assert tuple(re.findall(r"[\d.]+", path)[-2:]) in edges or "V" in path


@pytest.mark.parametrize("name", ["transforms", "sequences", "architectures", "item_sequences"])
def test_nothing_overlaps(zoo, name):
    check_places(draw(as_data(zoo(name).compiled)))


def block(number, side="user", how="FarmHash64 mod 7", engine="native", **fields):
    return {
        "tensor": f"t{number}",
        "made_of": f"f{number}",
        "side": side,
        "columns": [number * 4, number * 4 + 4],
        "features": [f"f{number}"],
        "how": how,
        "table": f"table{number}",
        "engine": engine,
        **fields,
    }


def test_a_hundred_features_are_grouped_and_nothing_is_lost(report):
    cut = [block(number, how=f"FarmHash64 mod {number}") for number in range(60)]
    cut += [block(number, how=f"step {chr(97 + number % 26)}{number}") for number in range(60, 99)]
    cut.append(block(99, how="EncodeBase64", engine="tensorflow"))
    rows = rows_of(cut, "user")
    assert len(rows) <= MOST_ROWS
    assert [row.engine for row in rows if row.engine != "native"] == ["tensorflow"]
    assert sum(len(row.whole.splitlines()) for row in rows) == 100
    assert "60 tables" in [row.table for row in rows]
    assert "FarmHash64 mod …" in [row.how for row in rows]
    check_places(draw({**report, "cut": cut}))


def test_few_features_have_a_row_each():
    rows = rows_of([block(number) for number in range(MOST_ROWS)], "user")
    assert [row.columns for row in rows] == [f"user[{4 * n}:{4 * n + 4}]" for n in range(MOST_ROWS)]
    assert rows_of([block(1), block(2, columns=[4, 8])], "user")[0].columns == "user[4:8]"
    assert len(rows_of([block(1), block(2, columns=[4, 8])], "user")) == 1, "they share their columns"
    assert rows_of([block(1)], "item") == []


def test_slow_engines_are_red(export):
    parts = {"rows": variable(9, 3, seed=1, name="rows")}

    def call(m, word, price):
        ids = tf.strings.to_hash_bucket_fast(tf.io.encode_base64(word), 9)
        return tf.reduce_sum(tf.gather(m.rows, ids), 1) * price

    model = made(parts, call, ("word",), word=(tf.string, [None]), price=(tf.float32, [None]))
    report = as_data(compile_model(export(model), "cpu"))
    (slow,) = [box for box in draw(report).boxes if box.kind == "tensorflow"]
    assert slow.lines[0].startswith("TensorFlow (slow): EncodeBase")
    page = as_html(report)
    assert 'class="box tensorflow"' in page
    assert '<tr class="slow">' in page
    assert "<dd>1</dd>" in page


def test_the_command_writes_the_page(zoo, tmp_path):
    saved_model = str(zoo("every_word_known").path)
    path = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["inspect", saved_model, "--html", str(path), "--json"])
    assert result.exit_code == 0, result.output
    assert path.read_text() == as_html(json.loads(result.stdout))
    assert list(tmp_path.iterdir()) == [path]
    result = CliRunner().invoke(app, ["inspect", saved_model, "--html", str(tmp_path)])
    assert "cannot write" in str(result.exception)
    assert list(tmp_path.iterdir()) == [path]
