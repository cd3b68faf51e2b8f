"""How the settings in `train.py` were chosen: each train day once held out, the held-out days never read.

python examples/obd/choose.py
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import train
from dataset import Log, load
from evaluation import auc


class Setting(NamedTuple):
    """One candidate for the settings of `train.fit`."""

    epochs: int
    learning_rate: float
    l2: float
    dropout: float


# Stronger penalties (1e-3, 1e-2) did no worse within the noise, but shrink the embeddings until scores hardly
# depend on them, and then a comparison of served with original scores would not notice a wrong lookup.
SETTINGS = (
    Setting(1, 1e-3, 1e-4, 0.3),
    Setting(4, 1e-3, 1e-4, 0.3),
    Setting(2, 1e-3, 1e-4, 0.5),
    Setting(6, 1e-3, 1e-4, 0.5),
    Setting(4, 3e-4, 1e-4, 0.5),
    Setting(8, 3e-4, 1e-4, 0.5),
    Setting(2, 1e-3, 1e-5, 0.5),
    Setting(4, 1e-3, 1e-5, 0.3),
)


def main() -> int:
    """Print the mean AUC over the left-out days, weighted by their clicks, of every setting."""
    train.make_deterministic(train.SEED)
    log = load().on_days(train.TRAIN_DAYS)
    for setting in SETTINGS:
        days = [(day, left_out_auc(log, day, setting)) for day in train.TRAIN_DAYS]
        clicks = [log.on_days([day]).click.sum() for day, _ in days]
        mean = np.average([value for _, value in days], weights=clicks)
        print(f"{mean:.3f}  {setting}  by day: {' '.join(f'{value:.3f}' for _, value in days)}", flush=True)
    return 0


def left_out_auc(log: Log, day: int, setting: Setting) -> float:
    """AUC on one day of a model trained on the other days of the log."""
    others = log.on_days(set(train.TRAIN_DAYS) - {day})
    model = train.fit(
        others,
        setting.epochs,
        learning_rate=setting.learning_rate,
        l2=setting.l2,
        dropout=setting.dropout,
        say=lambda _: None,
    )
    left_out = log.on_days([day])
    return auc(left_out.click, train.predict(model, left_out))


if __name__ == "__main__":
    sys.exit(main())
