"""What counts as a line, a statement and a public name, and that a revision of the repository can be counted."""

from __future__ import annotations

import pytest

from benchmarks.line_budget import PRODUCT, Size, rows, size_of, sizes

SOURCE = '''"""A text."""

LIMIT, _hidden = 3, 4
"""A note."""


class Thing:
    """A text."""

    size: int


def made(size: int) -> Thing:
    if size > LIMIT:
        return Thing()
    return Thing()


def _own() -> None: ...
'''


def test_texts_are_no_statements_and_what_begins_with_an_underscore_is_no_public_name() -> None:
    assert size_of(SOURCE) == Size(modules=1, lines=19, statements=9, public_names=3)


@pytest.mark.commit
def test_every_package_is_a_row_and_the_product_their_sum() -> None:
    found = sizes(PRODUCT)
    (*_, product) = rows(found, None)
    assert product[0] == "the product"
    assert product[1] == f"{sum(size.modules for size in found.values()):,}"


def test_what_changed_stands_in_brackets() -> None:
    found = dict.fromkeys(PRODUCT, Size(2, 20, 10, 5))
    before = dict.fromkeys(PRODUCT, Size(1, 30, 10, 4))
    assert rows(found, before)[0] == ("hw_models", "2 (+1)", "20 (-10)", "10 (+0)", "5 (+1)")
