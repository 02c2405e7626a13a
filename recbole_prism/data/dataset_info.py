"""What a model needs to know of a data set, without the data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Mapping, NoReturn, Optional

from recbole_prism.errors import DataError, ModelError


class NotOfferedError(ModelError, AttributeError):
    """A model wants more of a data set than DatasetInfo; an AttributeError too, so that `hasattr` works."""


@dataclass(frozen=True)
class DatasetInfo:
    """Counts and field names: dataset.json of a run directory, and a stand-in for `dataset` in a model's constructor.

    Attributes:
        name: The data set's name.
        n_users: Users including the padding row 0, as RecBole counts them.
        n_items: Items including the padding row 0.
        n_interactions: Events in the data set after filtering.
        n_train_rows, n_valid_rows, n_test_rows: Rows of the three parts.
        uid_field, iid_field: Names of the user and item columns.
        item_list_field, item_list_length_field: Names of the history and its length in a batch.
        max_item_list_length: T, the longest history a model is given, in items.
        fingerprint: SHA-256 (hex) of items, rows and counts of all three parts.
        mask_token: Item id that a mask-based model puts in place of an item (BERT4Rec: `n_items`, one above the last
            item); None for other models, and until the model is built.
    """

    name: str
    n_users: int
    n_items: int
    n_interactions: int
    n_train_rows: int
    n_valid_rows: int
    n_test_rows: int
    uid_field: str
    iid_field: str
    item_list_field: str
    item_list_length_field: str
    max_item_list_length: int
    fingerprint: str
    mask_token: Optional[int] = None

    @property
    def user_num(self) -> int:
        """RecBole's name of `n_users`."""
        return self.n_users

    @property
    def item_num(self) -> int:
        """RecBole's name of `n_items`."""
        return self.n_items

    def num(self, field: str) -> int:
        """Number of different values of a field, with padding, as RecBole's `Dataset.num`.

        Raises:
            DataError: If the field is none of user, item and item list.
        """
        if field == self.uid_field:
            return self.n_users
        if field in (self.iid_field, self.item_list_field):
            return self.n_items
        raise DataError(
            f"Field '{field}' is not known here; known: {self.uid_field}, {self.iid_field}, {self.item_list_field}."
        )

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what is not there: tell the author of a model what is."""
        offered = [field.name for field in fields(type(self))] + ["user_num", "item_num", "num(field)"]
        raise NotOfferedError(
            f"a model asks its data set for {name!r}, but is given a description of it, not the data",
            f"it has: {', '.join(offered)}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DatasetInfo:
        """The inverse of `to_dict`.

        Raises:
            DataError: If a value is missing or unknown.
        """
        try:
            return cls(**values)
        except TypeError as error:
            raise DataError(f"The stored description of a data set cannot be read: {error}.") from error
