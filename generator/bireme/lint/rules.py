"""All rules, in the order in which their findings are listed."""

from __future__ import annotations

from bireme.lint.finding import Rule
from bireme.lint.rules_gpu_python import GPU_PYTHON_RULES
from bireme.lint.rules_graph_specs import GRAPH_SPEC_RULES
from bireme.lint.rules_graphs import GRAPH_RULES
from bireme.lint.rules_settings import SETTING_RULES

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (*GRAPH_RULES, *GRAPH_SPEC_RULES, *SETTING_RULES, *GPU_PYTHON_RULES)
