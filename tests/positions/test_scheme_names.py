"""A scheme that was written for version 0.3 keeps its meaning."""

from typing import ClassVar

from diet_fairseq.positions import PositionScheme


def test_attributes_of_a_scheme_may_have_the_names_of_0_3():
    class Old(PositionScheme):
        tables: ClassVar = {"weight": (0,)}
        offset_tables: ClassVar = {"offsets": 1}
        meaning = ("buckets",)
        scaled = ("query",)
        zeroed = ("key.",)

    assert Old.position_axes == {"weight": (0,)}
    assert Old.offset_axes == {"offsets": 1}
    assert Old.described_options == ("buckets",)
    assert Old.scaled_projections == ("query",)
    assert Old.zero_init == ("key.",)
    assert PositionScheme.zero_init == ("",)
