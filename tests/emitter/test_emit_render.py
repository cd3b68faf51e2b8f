from __future__ import annotations

from pathlib import Path

import pytest
from emitter_helpers import make_contract
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.emitter.configs import model_configs
from bireme.emitter.render import quoted, render
from bireme.errors import EmitError
from bireme_runtime.plan import Feature

GOLDEN = Path(__file__).parent / "golden"
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
NASTY = st.sampled_from(
    [
        '"',
        "\\",
        '\\"',
        "a\nb",
        "\r\n",
        "\t",
        "{{ 7 * 7 }}",
        "{% raw %}",
        "#",
        "'",
        "\\n",
        "\\101",
        "日本",
        "\u2028",
        "\x85",
        "\x7f1",
    ]
)


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_the_text_is_what_a_person_would_write(target: str) -> None:
    for config in model_configs(make_contract(target, max_users=2)):
        expected = (GOLDEN / target / f"{config.name}.pbtxt").read_text(encoding="utf-8")
        assert render(config, ["golden"]) == expected


@given(text=NAMES | NASTY)
def test_quoted_text_is_read_back_unchanged(text: str) -> None:
    literal = quoted(text)
    assert literal.isprintable()
    assert text_format.Parse(f"name: {literal}", ModelConfig()).name == text


@given(
    target=st.sampled_from(["cpu", "gpu", "gpu-python"]),
    names=st.lists(NAMES | NASTY, min_size=2, max_size=6, unique=True),
    length=st.sampled_from([None, -1, 7]),
    side=st.sampled_from(["user", "item"]),
    dtype=st.sampled_from(["string", "int32", "int64", "float32", "float64", "bool"]),
    default=st.sampled_from([None, 0]),
    max_users=st.integers(1, 40),
)
def test_every_config_of_any_contract_survives_the_round_trip(
    target: str, names: list[str], length: int | None, side: str, dtype: str, default: object, max_users: int
) -> None:
    tasks = tuple(name for name in names[1:] if name not in ("user", "items", "n")) or ("score of all",)
    features = (Feature(names[0], side, dtype, length, default),)
    for config in model_configs(make_contract(target, features=features, tasks=tasks, max_users=max_users)):
        assert text_format.Parse(render(config, ["head"]), ModelConfig()) == config


@st.composite
def messages(draw: st.DrawFn) -> ModelConfig:
    """Messages with any of the fields we emit present or absent, beyond what today's contracts give."""
    names = NAMES | NASTY
    dims = st.lists(st.integers(-1, 2**40), max_size=3)
    config = ModelConfig(
        name=draw(names),
        platform=draw(st.just("") | names),
        backend=draw(st.just("") | names),
        default_model_filename=draw(st.just("") | names),
        max_batch_size=draw(st.integers(0, 1024)),
    )
    for name in draw(st.lists(names, max_size=3)):
        config.input.add(
            name=name,
            data_type=draw(st.integers(0, 14)),
            dims=draw(dims),
            optional=draw(st.booleans()),
            allow_ragged_batch=draw(st.booleans()),
        )
        config.output.add(name=name, data_type=draw(st.integers(0, 14)), dims=draw(dims))
    if draw(st.booleans()):
        config.instance_group.add(kind=draw(st.integers(0, 3)), count=draw(st.integers(0, 9)))
        config.parameters[draw(names)].string_value = draw(names)
    if draw(st.booleans()):
        config.optimization.SetInParent()
        config.optimization.eager_batching = draw(st.booleans())
    if draw(st.booleans()):
        config.optimization.input_pinned_memory.enable = True
        config.optimization.cuda.graphs = draw(st.booleans())
        for bound in draw(st.lists(st.booleans(), max_size=2)):
            spec = config.optimization.cuda.graph_spec.add(batch_size=draw(st.integers(0, 99)))
            spec.input[draw(names)].dim.extend(draw(dims))
            if bound:
                spec.graph_lower_bound.input[draw(names)].dim.extend(draw(dims))
    if draw(st.booleans()):
        config.dynamic_batching.preferred_batch_size.extend(draw(st.lists(st.integers(1, 99), max_size=3)))
        config.dynamic_batching.SetInParent()
    elif draw(st.booleans()):
        step = config.ensemble_scheduling.step.add(
            model_name=draw(names), model_version=draw(st.integers(-1, 9))
        )
        step.input_map[draw(names)] = draw(names)
        step.output_map[draw(names)] = draw(names)
    return config


@given(config=messages())
def test_any_mixture_of_the_fields_we_emit_survives_the_round_trip(config: ModelConfig) -> None:
    assert text_format.Parse(render(config, []), ModelConfig()) == config


@pytest.mark.parametrize(
    "text",
    [
        "response_cache { }",
        'input { name: "x" reshape { shape: [ 1 ] } }',
        "instance_group { gpus: [ 0 ] }",
        "optimization { cuda { busy_wait_events: true } }",
        "optimization { input_pinned_memory { } }",
        "dynamic_batching { max_queue_delay_microseconds: 5 }",
        'ensemble_scheduling { step { model_name: "x" model_namespace: "y" } }',
    ],
)
def test_a_field_the_template_does_not_know_is_never_lost_silently(text: str) -> None:
    config = text_format.Parse(f'name: "shop_dnn" {text}', ModelConfig())
    with pytest.raises(EmitError, match=r"shop_dnn/config.pbtxt: does not say what was meant"):
        render(config, [])


def test_a_head_line_that_breaks_the_text_is_noticed() -> None:
    with pytest.raises(EmitError, match="cannot be parsed"):
        render(ModelConfig(name="x"), ["two\nlines {"])
