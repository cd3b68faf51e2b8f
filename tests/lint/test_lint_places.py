"""Places are found in every way that protobuf lets one write a config."""

from __future__ import annotations

import pytest

from bireme.lint.places import line_of, read_nodes

TEXT = """name: "a"  # a comment: { [

input [
  { name: "x" dims: [ -1,
      8 ] },
  {
    name: 'y'
    dims: 4
  }
]
instance_group { count: 2 }
instance_group < kind: KIND_CPU; >
parameters: {
  key: "graphs"
  value: { string_value: "1 } 2" }
}
optimization { cuda {
  graph_spec { batch_size: 1 }
  graph_spec { batch_size: 2
    input { key: "x" value { dim: [ 8 ] } }
  }
} }
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("name", 1),
        ("input", 4),
        ("input[x].dims", 4),
        ("input[y]", 6),
        ("input[y].dims", 8),
        ("instance_group[0].kind", 11),
        ("instance_group[1].kind", 12),
        ("parameters[graphs]", 13),
        ("parameters[graphs].string_value", 15),
        ("optimization.cuda.graph_spec[1]", 19),
        ("optimization.cuda.graph_spec[1].input[x]", 20),
        ("optimization.cuda.graph_spec[1].input[z]", 19),
        ("optimization.cuda.graphs", 17),
        ("max_batch_size", None),
    ],
)
def test_a_place_has_the_line_of_its_deepest_written_part(place: str, line: int | None) -> None:
    assert line_of(place, read_nodes(TEXT)) == line


def test_a_text_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    for end in range(len(TEXT)):
        read_nodes(TEXT[:end])
    assert line_of("input[x]", read_nodes("input [ { name: 'x' dims: [ 1")) == 1
