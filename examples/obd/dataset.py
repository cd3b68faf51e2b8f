"""The Open Bandit Dataset sample, read out of the installed `obp` wheel.

`obp` itself is never imported (it would pull in torch and pandas); only the CSV files inside it are read:
`obp/dataset/obd/{random,bts}/{all,men,women}/{<campaign>,item_context}.csv`, 10,000 impressions each.
"""

from __future__ import annotations

import csv
import importlib.metadata
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bireme.errors import BiremeError

__all__ = [
    "CAMPAIGNS",
    "FEATURES",
    "HISTORY",
    "ITEM_FEATURES",
    "USER_FEATURES",
    "Catalog",
    "Log",
    "find_dataset",
    "item_name",
    "load",
    "recent_items",
]

CAMPAIGNS = ("all", "men", "women")
POLICIES = ("random", "bts")
HISTORY = 20
"""How many recently shown items a row remembers."""
COHORT = tuple(f"user_feature_{k}" for k in range(4))
"""The log has no user ids; people who share these four (hashed) features count as one user."""
USER_FEATURES = (*COHORT, "hour", "recent_items")
ITEM_FEATURES = (
    "item_id",
    "item_feature_0",
    "item_feature_1",
    "item_feature_2",
    "item_feature_3",
    "affinity",
)
FEATURES = (*USER_FEATURES, *ITEM_FEATURES)

Array = npt.NDArray[Any]


class Catalog(NamedTuple):
    """The items of one campaign, in id order; every array has shape [items]."""

    features: dict[str, Array]
    """`item_id` and `item_feature_1..3` as str objects, `item_feature_0` float32."""

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.features["item_id"])


@dataclass(frozen=True)
class Log:
    """Impressions of both policies and all campaigns, ordered by time.

    Args:
        features: the twelve model inputs. Strings are object arrays [rows]; `hour` int64 [rows]; `affinity`
            and `item_feature_0` float32 [rows]; `recent_items` object [rows, HISTORY], newest first, padded
            with "".
        click: int8 [rows], 1 where the shown item was clicked.
        day: int64 [rows], 1 for the first day (2019-11-24, UTC) to 7.
        campaign: object [rows], one of CAMPAIGNS.
        affinities: float32 [rows, most items of a campaign], this user's affinity to each item of the row's
            campaign, zero beyond the campaign's items.
        catalogs: items per campaign.
    """

    features: dict[str, Array]
    click: Array
    day: Array
    campaign: Array
    affinities: Array
    catalogs: dict[str, Catalog]

    @property
    def size(self) -> int:
        """Number of impressions."""
        return len(self.click)

    def on_days(self, days: Iterable[int]) -> Log:
        """The impressions of some days, in the same order; catalogs are kept whole."""
        keep = np.isin(self.day, list(days))
        return Log(
            features={name: values[keep] for name, values in self.features.items()},
            click=self.click[keep],
            day=self.day[keep],
            campaign=self.campaign[keep],
            affinities=self.affinities[keep],
            catalogs=self.catalogs,
        )


class _Impression(NamedTuple):
    time: datetime
    campaign: str
    item: int
    click: int
    cohort: tuple[str, ...]
    affinities: list[float]


def item_name(campaign: str, item: int) -> str:
    """Item ids repeat between campaigns, so an item is called by both, e.g. "all-17"."""
    return f"{campaign}-{item}"


def find_dataset() -> Path:
    """The folder of the sample inside the installed `obp` wheel.

    Raises:
        BiremeError: `obp` is not installed, or holds no sample.
    """
    try:
        wheel = importlib.metadata.distribution("obp")
    except importlib.metadata.PackageNotFoundError:
        raise BiremeError(
            "obp",
            "the package that carries the Open Bandit Dataset sample is not installed",
            "run `make venv`",
        ) from None
    folder = Path(str(wheel.locate_file("obp/dataset/obd")))
    if not folder.is_dir():
        raise BiremeError(
            str(folder), "this obp wheel carries no sample data", "run `make venv`, it pins 0.4.1"
        )
    return folder


def load(folder: Path | None = None) -> Log:
    """Read the whole sample.

    Args:
        folder: holds `random/` and `bts/`; by default the one inside the installed wheel.

    Raises:
        BiremeError: `obp` is not installed, or a file is missing or malformed.
    """
    folder = folder or find_dataset()
    # The hashes of item features are salted per policy folder; those of `random` serve both policies.
    catalogs = {c: _read_catalog(folder / "random" / c / "item_context.csv", c) for c in CAMPAIGNS}
    impressions: list[_Impression] = []
    for policy in POLICIES:
        for campaign in CAMPAIGNS:
            path = folder / policy / campaign / f"{campaign}.csv"
            impressions += _read_impressions(path, campaign, catalogs[campaign].size)
    impressions.sort(key=lambda row: row.time)
    return _assemble(impressions, catalogs)


def recent_items(rows: Sequence[tuple[datetime, str, tuple[str, ...], str]], length: int = HISTORY) -> Array:
    """What each row's cohort was shown before, within the same campaign.

    Args:
        rows: (time, campaign, cohort, item name), ascending in time.
        length: how many items to remember.

    Returns:
        object [rows, length]: newest first, padded with "". Items of the same instant are not "before".
    """
    history: dict[tuple[str, tuple[str, ...]], deque[tuple[datetime, str]]] = defaultdict(deque)
    out = np.full((len(rows), length), "", dtype=object)
    for i, (time, campaign, cohort, item) in enumerate(rows):
        seen = history[campaign, cohort]
        before = [name for shown, name in seen if shown < time][:length]
        out[i, : len(before)] = before
        seen.appendleft((time, item))
        # The next row may share this instant and not see it yet, so `length` older entries must stay.
        while len(seen) > length and seen[-length - 1][0] < time:
            seen.pop()
    return out


def _assemble(impressions: list[_Impression], catalogs: dict[str, Catalog]) -> Log:
    first_day = impressions[0].time.date().toordinal()
    items = np.array([row.item for row in impressions])
    campaign = _strings(row.campaign for row in impressions)
    names = [item_name(row.campaign, row.item) for row in impressions]
    affinities = np.zeros((len(impressions), max(c.size for c in catalogs.values())), np.float32)
    for values, row in zip(affinities, impressions, strict=True):
        values[: len(row.affinities)] = row.affinities
    features: dict[str, Array] = {
        name: _strings(row.cohort[k] for row in impressions) for k, name in enumerate(COHORT)
    }
    features["hour"] = np.array([row.time.hour for row in impressions], np.int64)
    features["recent_items"] = recent_items(
        [(row.time, row.campaign, row.cohort, name) for row, name in zip(impressions, names, strict=True)]
    )
    for name in ITEM_FEATURES[:-1]:
        column = np.empty(len(impressions), catalogs[CAMPAIGNS[0]].features[name].dtype)
        for key, catalog in catalogs.items():
            here = campaign == key
            column[here] = catalog.features[name][items[here]]
        features[name] = column
    features["affinity"] = affinities[np.arange(len(items)), items]
    return Log(
        features=features,
        click=np.array([row.click for row in impressions], np.int8),
        day=np.array([row.time.date().toordinal() - first_day + 1 for row in impressions], np.int64),
        campaign=campaign,
        affinities=affinities,
        catalogs=catalogs,
    )


def _read_catalog(path: Path, campaign: str) -> Catalog:
    with _blaming(path):
        rows = sorted(_read_csv(path), key=lambda row: int(row["item_id"]))
        if [int(row["item_id"]) for row in rows] != list(range(len(rows))):
            raise ValueError("item ids are not 0, 1, 2, …")
        features: dict[str, Array] = {
            "item_id": _strings(item_name(campaign, item) for item in range(len(rows))),
            "item_feature_0": np.array([float(row["item_feature_0"]) for row in rows], np.float32),
        }
        for k in (1, 2, 3):
            features[f"item_feature_{k}"] = _strings(row[f"item_feature_{k}"] for row in rows)
    return Catalog(features)


def _read_impressions(path: Path, campaign: str, items: int) -> list[_Impression]:
    with _blaming(path):
        return [
            _Impression(
                time=datetime.fromisoformat(row["timestamp"]),
                campaign=campaign,
                item=range(items).index(int(row["item_id"])),
                click=int(row["click"]),
                cohort=tuple(row[name] for name in COHORT),
                affinities=[float(row[f"user-item_affinity_{k}"]) for k in range(items)],
            )
            for row in _read_csv(path)
        ]


def _read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError("it has no rows")
    return rows


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turn whatever reading a file may raise into one error that names the file."""
    remedy = "install obp 0.4.1 again with `make venv`"
    try:
        yield
    except OSError as error:
        raise BiremeError(str(path), f"cannot be read: {error.strerror}", remedy) from None
    except KeyError as error:
        raise BiremeError(str(path), f"column {error} is missing", remedy) from None
    except (TypeError, ValueError, csv.Error) as error:
        raise BiremeError(str(path), f"is not an Open Bandit file: {error}", remedy) from None


def _strings(values: Iterable[str]) -> Array:
    return np.array(list(values), dtype=object)
