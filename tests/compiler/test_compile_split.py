"""Pass split: which tensors are the frontier, and where their columns lie."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from compiler_parts import made, table, variable

from bireme.compiler.cut.split import split
from bireme.compiler.graph import Graph, Node
from bireme.compiler.pipeline import compile_model
from bireme_runtime import plan as p

S, F, I64 = tf.string, tf.float32, tf.int64


@pytest.mark.parametrize(
    "name", ["transforms", "sequences", "architectures", "plain_tensorflow", "clashing_names"]
)
def test_columns_of_a_side_lie_end_to_end_in_the_order_of_the_cut(zoo, name):
    compiled = zoo(name).compiled
    for side, width in (("user", compiled.plan.user_width), ("item", compiled.plan.item_width)):
        blocks = [s for s in compiled.plan.steps if isinstance(s, (p.Embed, p.Numeric)) and s.side == side]
        cuts = [boundary for boundary in compiled.split.boundaries if boundary.side == side]
        end = 0
        for block, cut in zip(blocks, cuts, strict=True):
            assert (block.offset, block.width) == (cut.offset, cut.width) == (end, block.width)
            assert int(np.prod(cut.shape)) == cut.width
            end += block.width
        assert end == width


@pytest.mark.parametrize("name", ["transforms", "sequences", "architectures", "plain_tensorflow"])
def test_the_side_of_a_column_is_that_of_its_feature(zoo, name):
    example = zoo(name)
    plan = example.compiled.plan
    sides = {feature.name: feature.side for feature in plan.features}
    maker = {step.name: step.feature for step in plan.steps if hasattr(step, "feature")}
    for step in plan.steps:
        if isinstance(step, (p.Embed, p.Numeric)):
            feature = maker[step.ids] if isinstance(step, p.Embed) else step.feature
            assert step.side == sides[feature]
    assert {name for name, side in sides.items() if side == "user"} <= set(example.made.user)


@pytest.mark.parametrize("name", ["transforms", "sequences", "architectures", "clashing_names"])
def test_the_dense_side_holds_no_cpu_op_and_reads_all_columns(zoo, name):
    cut = zoo(name).compiled.split
    ops = {node.op for node in cut.dense.nodes.values()}
    assert not ops & {
        "StringToHashBucketFast",
        "LookupTableFindV2",
        "GatherV2",
        "ResourceGather",
        "Bucketize",
    }
    assert cut.dense.captures == {}
    assert set(cut.dense.features) == {boundary.name for boundary in cut.boundaries}
    placeholders = {node.name for node in cut.dense.nodes.values() if node.op == "Placeholder"}
    assert placeholders == set(cut.dense.features)


def steps_of(compiled, kind):
    return [step for step in compiled.plan.steps if isinstance(step, kind)]


def test_transforms_become_the_steps_that_they_are(zoo):
    compiled = zoo("transforms").compiled
    chains = {tuple(name for name, _ in step.chain): step.feature for step in steps_of(compiled, p.Numeric)}
    assert chains[("log1p",)] == "price"
    assert chains[("maximum", "sqrt", "div", "rsub", "tanh")] == "price"
    assert chains[("div",)] == "count"
    assert {step.buckets for step in steps_of(compiled, p.HashBucket)} == {11}
    assert {step.edges for step in steps_of(compiled, p.Bucketize)} == {(-1.0, 0.25, 2.5), (3.0, 10.0, 30.0)}
    assert {step.feature for step in steps_of(compiled, p.IdentityId)} == {"count"}


def test_equal_transforms_share_one_step_and_one_table(zoo):
    """`shared_table` looks two features up in one vocabulary and one table; `masked_lookup` has its own."""
    compiled = zoo("transforms").compiled
    shared = [table for table in compiled.plan.tables if table.name.startswith("shared")]
    assert len(shared) == 1
    readers = [step for step in steps_of(compiled, p.Embed) if step.table == shared[0].name]
    assert {step.side for step in readers} == {"user", "item"}
    files = {s.name: s.file for s in steps_of(compiled, p.Vocabulary)}
    assert len({files[step.ids] for step in readers}) == 1


def test_sequences_are_pooled_with_the_mask_of_the_model(zoo):
    compiled = zoo("sequences").compiled
    makers = {step.name: step.feature for step in compiled.plan.steps if hasattr(step, "feature")}
    pools = {
        (makers[s.ids], s.pool, s.mask.value if s.mask else None, s.floor)
        for s in steps_of(compiled, p.Embed)
    }
    assert pools == {
        ("words", "mean", 0, 1.0),
        ("words", "sum", 0, 1.0),
        ("words", "mean", "", 1.0),
        ("words", "sum", "", 1.0),
        ("words", "sum", None, 1.0),
        ("ids", "mean", 0, float(np.float32(1e-9))),
        ("ids", "mean", 0, 1.0),
        ("five", "mean", 0, 1.0),
        ("five", "mean", None, 1.0),
        ("four", "sum", None, 1.0),
        ("four", "mean", None, 1.0),
    }


def test_tables_of_a_width_share_an_arena_without_gaps(zoo):
    plan = zoo("transforms").compiled.plan
    for arena in {entry.arena for entry in plan.tables}:
        tables = sorted((t for t in plan.tables if t.arena == arena), key=lambda t: t.row_offset)
        assert len({t.width for t in tables}) == 1
        assert [t.row_offset for t in tables] == list(np.cumsum([0, *(t.rows for t in tables[:-1])]))


def test_variables_of_one_name_stay_apart(zoo):
    """tf.Module calls every variable `Variable`; one table here is even named like a feature."""
    names = [table.name for table in zoo("plain_tensorflow").compiled.plan.tables]
    assert len(set(names)) == len(names) == 3
    assert "word" in names


def test_the_frontier_is_as_near_to_the_outputs_as_it_can_be(export):
    """Transforms by constants stay on the CPU; what mixes two features is dense."""

    def call(m, age, price):
        scaled = tf.math.log1p(age * 2.0)
        return {"score": scaled * tf.tanh(price) + scaled, "again": scaled - price}

    model = made({}, call, ("age",), age=(F, [None]), price=(F, [None]))
    compiled = compile_model(export(model), "cpu")
    made_of = {boundary.made_of for boundary in compiled.split.boundaries}
    assert made_of == {"age → mul → log1p", "price → tanh", "price"}


def test_a_chain_of_ops_may_be_longer_than_pythons_stack():
    kind = tf.compat.v1.AttrValue(type=F.as_datatype_enum)
    rows = tf.compat.v1.AttrValue(shape=tf.TensorShape([None]).as_proto())
    number, same = {"dtype": kind, "shape": rows}, {"T": kind}
    nodes = [Node(name, "Placeholder", [], number) for name in ("age", "price")]
    nodes.append(Node("one", "Const", value=np.float32(1.0)))
    last = "age"
    for k in range(3000):  # on the CPU side
        nodes.append(Node(f"add_{k}", "AddV2", [f"{last}:0", "one:0"], same))
        last = nodes[-1].name
    nodes.append(Node("mix", "Mul", [f"{last}:0", "price:0"], same))
    last = "mix"
    for k in range(3000):  # on the dense side
        nodes.append(Node(f"relu_{k}", "Relu", [f"{last}:0"], same))
        last = nodes[-1].name
    features = {"age": "age", "price": "price"}
    graph = Graph({node.name: node for node in nodes}, features, {"score": f"{last}:0"}, {})
    cut = split(graph, {"age": ("R",), "price": ("R",)}, {"age": "user", "price": "item"})
    (numeric,) = [step for step in cut.steps if step.side == "user"]
    assert numeric.chain == (("add", 1.0),) * 3000
    assert len(cut.dense.nodes) == 3003


def test_one_feature_hashed_and_looked_up(export):
    parts = {"words": table(["a", "b"], [1, 2], 0), "rows": variable(7, 2)}

    def call(m, word, price):
        both = tf.gather(m.rows, tf.strings.to_hash_bucket_fast(word, 7)) * tf.gather(
            m.rows, m.words.lookup(word)
        )
        return {"score": tf.reduce_sum(both, -1) * price}

    compiled = compile_model(export(made(parts, call, ("word",), word=(S, [None]), price=(F, [None]))), "cpu")
    assert [type(step).__name__ for step in compiled.plan.steps[:2]] == ["HashBucket", "Vocabulary"]
    assert len(compiled.plan.tables) == 1
    assert compiled.plan.user_width == 4


def test_no_step_is_called_like_a_feature(zoo):
    """A mask names a step or a feature, so the two must not be confused: here a feature is `w.vocabulary`."""
    plan = zoo("clashing_names").compiled.plan
    features = {feature.name for feature in plan.features}
    assert "w.vocabulary" in features
    assert not features & {step.name for step in plan.steps}
