"""The CPU bank: a feature plan with its tables and vocabularies, run on batches of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .accelerated import Accelerated, Prepared, Unusual
from .batching import bucket_for, pad_together
from .engines import open_engine
from .fusion import fuse
from .library import Library
from .plan import Feature, IntVocabulary, Plan, Subgraph, Vocabulary
from .requests import Array, BadRequests, Batch, Request, RequestError, measure
from .state import State
from .store import open_store
from .string_file import load_strings
from .tables import split_arenas
from .text_steps import Pick
from .vocabulary import IntVocabulary as IntVocabularyFile
from .vocabulary import Vocabulary as VocabularyFile

__all__ = ["Features", "Preprocessor", "RequestError"]


@dataclass(frozen=True)
class Features:
    """What one request hands over to the DNN.

    Args:
        user: [users, user_width].
        items: [users, candidates (or the bucket, if the plan pads), item_width].
        candidates: N before padding.
    """

    user: Array
    items: Array
    candidates: int


class Preprocessor:
    """Runs a plan, for any number of threads unless `reuse` says that they share their results' memory.

    Args:
        plan: the feature plan.
        arenas: arena file → [rows, width].
        vocabularies: file → vocabulary.
        engines: file of a subgraph → its function.
        library: the C kernel; without one numpy does everything.
        reuse: whether results may be overwritten by the next batch.
        notes: what the log should say of how the tables were opened.
    """

    def __init__(
        self,
        plan: Plan,
        arenas: Mapping[str, Array],
        vocabularies: Mapping[str, Any],
        engines: Mapping[str, Any] | None = None,
        library: Library | None = None,
        reuse: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self.plan = plan
        self._arenas = arenas
        self._tables = split_arenas(arenas, plan.tables)
        self._vocabularies = vocabularies
        self._engines = engines or {}
        self._stages = fuse(plan, arenas, vocabularies)
        self._features: dict[str, Feature] = {feature.name: feature for feature in plan.features}
        self._limit = float(np.finfo(plan.handover).max)
        self.kernel: Accelerated | None = None
        if library is not None:
            self.kernel = Accelerated(library, plan, arenas, vocabularies, self._engines, self._tables, reuse)
        #: sentences for the log
        self.notes = (*notes, *self._left_to_numpy())

    @classmethod
    def open(
        cls, folder: Path, huge_pages: str = "off", library: Library | None = None, reuse: bool = False
    ) -> Preprocessor:
        """Read `plan.json` and map everything it names.

        Args:
            folder: a version folder of a preprocess model.
            huge_pages: one of `local_store.POLICIES`.
            library: the C kernel; without one numpy does everything.
            reuse: whether results may be overwritten by the next batch.

        Raises:
            ValueError: a file is missing, truncated or of another format version.
        """
        plan = Plan.read(folder / "plan.json")
        vocabularies: dict[str, Any] = {}
        for step in plan.steps:
            if isinstance(step, Vocabulary):
                vocabularies[step.file] = VocabularyFile.load(folder / step.file)
            elif isinstance(step, IntVocabulary):
                vocabularies[step.file] = IntVocabularyFile.load(folder / step.file)
            elif isinstance(step, Pick):
                vocabularies[step.file] = load_strings(folder / step.file)
        engines = {s.file: open_engine(s, folder / s.file) for s in plan.steps if isinstance(s, Subgraph)}
        store = open_store(folder, plan, huge_pages)
        return cls(plan, store.arenas, vocabularies, engines, library, reuse, store.notes)

    def _left_to_numpy(self) -> list[str]:
        """Which steps the kernel does not do."""
        left = self.kernel.program.left if self.kernel is not None else []
        if not left:
            return []
        names = ", ".join(f"{step.name} ({step.op})" for step in left[:8])
        more = f" and {len(left) - 8} more" if len(left) > 8 else ""
        return [f"{len(left)} steps of the feature plan stay with numpy: {names}{more}"]

    def run(self, requests: Sequence[Mapping[str, Array]]) -> list[Features | RequestError]:
        """Handle a batch in one pass; a bad request gets its own error and the others their features.

        Args:
            requests: for each request, feature → tensor.

        Returns:
            One result a request, in order.
        """
        if self.kernel is not None and not self.kernel.program.left:
            try:  # the usual case: nothing needs a second look
                prepared = [self.kernel.prepare(tensors) for tensors in requests]
                return [*self._apart(prepared, *self.kernel.run(prepared, []))]
            except Unusual:
                pass
        results: list[Features | RequestError | None] = [None] * len(requests)
        plan = self.plan
        lengths = plan.buckets if plan.listwise else None
        good: list[tuple[int, Request]] = []
        for index, tensors in enumerate(requests):
            try:
                good.append((index, measure(plan.features, tensors, plan.buckets[-1], lengths)))
            except RequestError as error:
                results[index] = error
        while good:
            try:
                for (index, _), features in zip(good, self._run([r for _, r in good]), strict=True):
                    results[index] = features
                break
            except BadRequests as refused:
                # Rare: take the bad requests out and run the others again.
                for position in sorted(refused.errors, reverse=True):
                    results[good.pop(position)[0]] = refused.errors[position]
        return [result for result in results if result is not None]

    def _run(self, requests: list[Request]) -> list[Features]:
        if self.kernel is not None:
            try:
                prepared = [self.kernel.measured(request) for request in requests]
                return self._apart(prepared, *self.kernel.run(prepared, requests))
            except (Unusual, BadRequests):
                pass  # of several faults, numpy alone names the same one whichever steps the kernel does
        batch = Batch(requests, self.plan.features)
        user = np.empty((batch.total("user"), self.plan.user_width), dtype=np.float32)
        items = np.empty((batch.total("item"), self.plan.item_width), dtype=np.float32)
        outputs: Mapping[Any, Array] = {"user": user, "item": items}
        state = State(
            batch, self._features, self._tables, self._vocabularies, outputs, self._limit, self._engines
        )
        for stage in self._stages:
            stage(state)
        return self._apart(requests, user, items, [request.candidates for request in requests])

    def _apart(
        self, requests: Sequence[Request | Prepared], user: Array, items: Array, padded: Sequence[int]
    ) -> list[Features]:
        """Each request's part of the outputs.

        Args:
            requests: the requests.
            user: [users of all, width].
            items: [rows of all, width].
            padded: the candidates that each request's rows are laid out for.
        """
        plan = self.plan
        user = user.astype(plan.handover, copy=False)
        items = items.astype(plan.handover, copy=False)
        results = []
        first_user = first_row = 0
        for request, candidates in zip(requests, padded, strict=True):
            last_user = first_user + request.users
            last_row = first_row + request.users * candidates
            block = items[first_row:last_row].reshape(request.users, candidates, plan.item_width)
            if plan.pad:
                block = pad_together([block], bucket_for(request.candidates, plan.buckets))
            results.append(Features(user[first_user:last_user], block, request.candidates))
            first_user, first_row = last_user, last_row
        return results
