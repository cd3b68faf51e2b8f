"""All that one `bireme verify` has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bireme.errors import VerifyError
from bireme.verify.gpu import NetworkFound
from bireme.verify.orders import Ordered
from bireme.verify.parity import Parity

__all__ = ["Verified"]


@dataclass
class Verified:
    """Findings, and what is wrong among them.

    Args:
        parity: one a protocol.
        ordered: the ensemble in sequences (GPU repositories).
        networks: its networks in sequences, and what the log proves (GPU repositories).
        notes: what was not looked at, and why.
        failures: the first one is what `require` raises.
    """

    parity: list[Parity]
    ordered: Ordered | None = None
    networks: list[NetworkFound] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[VerifyError] = field(default_factory=list)

    def collect(self, log: str) -> None:
        """Turn what is wrong in sequences and logs into failures.

        Args:
            log: where the server's log lies.
        """
        hint = f"do not serve this repository as it is; the server's log: {log}"
        in_order = [found.ordered for found in self.networks]
        for ordered in (*([self.ordered] if self.ordered else []), *in_order):
            if ordered.failures:
                message = f"{ordered.wrong} answers in sequences of shapes are wrong: {ordered.failures[0]}"
                self.failures.append(VerifyError(ordered.model, message, hint))
        for found in self.networks:
            for text in found.evidence.failures:
                self.failures.append(VerifyError(f"{found.network.name}: CUDA Graphs", text, hint))

    def attempt(self, check: Callable[[], None]) -> None:
        """Run a check, and keep its failure."""
        try:
            check()
        except VerifyError as error:
            self.failures.append(error)

    def require(self) -> Verified:
        """Itself, if nothing is wrong.

        Raises:
            VerifyError: the first failure.
        """
        if self.failures:
            raise self.failures[0]
        return self

    def as_data(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "scores": [parity.as_data() for parity in self.parity],
            "sequences": self.ordered.as_data() if self.ordered else None,
            "networks": [found.as_data() for found in self.networks],
            "notes": self.notes,
            "failures": [str(failure) for failure in self.failures],
        }
