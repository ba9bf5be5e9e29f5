"""Burcea, Jacobsen, de Lara, Muthusamy, Petrovic (2004): Disconnected Operation in Pub/Sub."""

import pytest

from sterna import Filter

S1 = "product = 'computer' AND brand = 'IBM' AND price <= 1600"


@pytest.mark.spec("MOD-4")
@pytest.mark.parametrize(
    ("s2", "s1_covers_s2", "s2_covers_s1"),
    [
        ("product = 'computer' AND brand = 'IBM' AND price <= 1500", True, False),
        ("product = 'computer' AND price <= 1600", False, True),
        ("product = 'computer' AND brand = 'Dell' AND price <= 1500", False, False),
    ],
)
def test_table_1(s2: str, s1_covers_s2: bool, s2_covers_s1: bool) -> None:
    """Examples of subscriptions and their covering relations."""
    assert Filter(S1).covers(Filter(s2)) is s1_covers_s2
    assert Filter(s2).covers(Filter(S1)) is s2_covers_s1


@pytest.mark.spec("MOD-4")
def test_a_subscription_intersects_an_advertisement() -> None:
    """Section 2: if there is at least one event that matches both."""
    advertisement = Filter("brand = 'IBM' AND price >= 500")

    assert advertisement.overlaps(Filter(S1))
    assert not advertisement.overlaps(Filter("brand = 'IBM' AND price < 500"))
    assert not advertisement.overlaps(Filter("brand = 'Dell'"))
