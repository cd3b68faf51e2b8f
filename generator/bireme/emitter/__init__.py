"""From a compiled model to a Triton model repository.

`configs` decides what each config.pbtxt says, `render` turns it into text, `layout` writes the files, `swap`
puts them in place at once, `manifest` tells later whether they are still what was built.
"""

from bireme.emitter.artifacts import Artifacts
from bireme.emitter.graphs import graph_plan
from bireme.emitter.layout import emit
from bireme.emitter.manifest import check_repository, read_manifest

__all__ = ["Artifacts", "check_repository", "emit", "graph_plan", "read_manifest"]
