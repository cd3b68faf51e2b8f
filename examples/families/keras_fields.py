"""What our own Keras 3 subjects share: raw inputs with their preprocessing layers, in the graph."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops
from subject_parts import Draw, Made, ids, numbers, randomise, words

__all__ = ["DIM", "Raw", "dense", "finish"]

DIM = 8
_GENDERS = ["female", "male", "other"]
_CATEGORIES = [f"category {i}" for i in range(12)] + ["книги", "本"]
_BRANDS = [f"brand {i}" for i in range(25)]
_TAGS = ["new", "sale", "gift", "eco", "größer", "last one"]
_SHOPS = list(range(100, 4000, 137))


class Raw:
    """Inputs of one model as they are made, with what requests for them look like.

    Each `…()` method makes an input and returns it encoded: an embedding [rows, DIM] or columns [rows, n].
    """

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}
        self.draws: dict[str, Draw] = {}

    def new(self, name: str, dtype: str, draw: Draw, shape: tuple[int | None, ...] = ()) -> Any:
        """An input of the model."""
        self.draws[name] = draw
        self.inputs[name] = keras.Input(shape, dtype=dtype, name=name)
        return self.inputs[name]

    def user_id(self) -> Any:
        """A hashed string."""
        raw = self.new("user_id", "string", words([f"u{i}" for i in range(500)], unknown=0.2))
        return _embed("user_id", layers.Hashing(150)(raw), 150)

    def gender(self) -> Any:
        """A small vocabulary, one-hot."""
        raw = self.new("gender", "string", words(_GENDERS), (1,))
        return layers.CategoryEncoding(4, output_mode="one_hot")(
            layers.StringLookup(vocabulary=_GENDERS)(raw)
        )

    def age(self) -> Any:
        """A number cut into intervals."""
        edges = [18.0, 25.0, 35.0, 50.0, 65.0]
        raw = self.new("age", "float32", numbers(0, 90))
        return _embed("age", layers.Discretization(edges)(raw), len(edges) + 1)

    def income(self) -> Any:
        """A number, normalised."""
        raw = self.new("income", "float32", numbers(0, 8), (1,))
        return layers.Normalization(mean=3.1, variance=4.2)(raw)

    def price(self) -> Any:
        """A long-tailed number."""
        return ops.log1p(self.new("price", "float32", numbers(0, 400), (1,)))

    def item_id(self) -> Any:
        """A row number."""
        return _embed("item_id", self.new("item_id", "int64", ids(0, 400)), 400)

    def category(self) -> Any:
        """A vocabulary with two places for unknown words."""
        raw = self.new("category", "string", words(_CATEGORIES))
        lookup = layers.StringLookup(vocabulary=_CATEGORIES, num_oov_indices=2)
        return _embed("category", lookup(raw), len(_CATEGORIES) + 2)

    def shop(self) -> Any:
        """A vocabulary of integers."""
        raw = self.new("shop", "int64", ids(90, 4100), (1,))
        return layers.Flatten()(_embed("shop", layers.IntegerLookup(vocabulary=_SHOPS)(raw), len(_SHOPS) + 1))

    def tags(self) -> Any:
        """A bag of words, multi-hot."""
        raw = self.new("tags", "string", words(_TAGS, 4, pad=""), (4,))
        return layers.StringLookup(
            vocabulary=_TAGS, output_mode="multi_hot", mask_token="", oov_token="[UNK]"
        )(raw)

    def brand(self) -> Any:
        """A vocabulary without a place for padding."""
        raw = self.new("brand", "string", words(_BRANDS))
        return _embed("brand", layers.StringLookup(vocabulary=_BRANDS)(raw), len(_BRANDS) + 1)

    def history(self, length: int, least: int = 0) -> tuple[Any, Any]:
        """Categories seen, `least` or more: ids [rows, length] and which of them are real (0 or 1)."""
        raw = self.new("history", "string", words(_CATEGORIES, length, pad="", least=least), (length,))
        found = layers.StringLookup(vocabulary=_CATEGORIES, mask_token="")(raw)
        return found, ops.cast(ops.not_equal(found, 0), "float32")

    def users(self) -> list[Any]:
        """The user side of most subjects."""
        return [self.user_id(), self.gender(), self.age(), self.income()]

    def items(self) -> list[Any]:
        """The item side of most subjects."""
        return [self.item_id(), self.category(), self.shop(), self.price(), self.tags()]


#: Inputs that describe the user, wherever a subject has them.
_USER_SIDE = ("user_id", "gender", "age", "income", "history", "history_shops", "hour", "device", "city")


def _embed(name: str, found: Any, rows: int, width: int = DIM) -> Any:
    return layers.Embedding(rows, width, name=f"{name}_embedding")(found)


def dense(x: Any, *units: int, activation: str = "relu", batchnorm: bool = False) -> Any:
    """A stack of dense layers."""
    for size in units:
        x = layers.Dense(size)(x)
        x = layers.BatchNormalization()(x) if batchnorm else x
        x = layers.Activation(activation)(x)
    return x


def finish(raw: Raw, outputs: Any, tells: str = "", seed: int = 3, **spec: Any) -> Made:
    """A Keras model with random weights, ready to export; a logit [rows, 1] becomes a probability."""
    if not isinstance(outputs, dict):
        outputs = {"score": ops.sigmoid(outputs)}
    model = keras.Model(dict(raw.inputs), outputs)
    randomise(model.weights, seed)
    user = tuple(name for name in raw.inputs if name in _USER_SIDE)
    return Made(lambda folder: model.export(folder, verbose=False), user, raw.draws, dict(spec), tells)
