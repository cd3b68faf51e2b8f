"""The rules as a Markdown table: what docs/lint.md holds and `bireme lint --rules` prints."""

from __future__ import annotations

from collections.abc import Sequence

from bireme.lint.finding import Rule

__all__ = ["rules_table"]


def rules_table(rules: Sequence[Rule]) -> str:
    """A line for each rule, by code."""
    head = ["| code | severity | finds | why | fix | Triton |", "|---|---|---|---|---|---|"]
    rows = [
        f"| {rule.code} | {rule.severity} | {rule.about} | {rule.why} | {rule.fix} | {rule.releases} |"
        for rule in sorted(rules, key=lambda rule: rule.code)
    ]
    return "\n".join([*head, *rows])
