"""Remarks on the rows of a table: told once, below it."""

from tftrt_tools.command_line.report import footnotes


def test_a_remark_of_several_rows_is_told_once_and_each_row_names_it():
    found = footnotes.collect([("", "slow", "busy"), ("busy", ""), (), ("other", "slow", "slow")])
    assert found.lines == ("slow", "busy", "other") and found.marks == ((1, 2), (2,), (), (1, 3))


def test_rows_without_remarks_have_none():
    assert footnotes.collect([("",), ()]) == footnotes.Footnotes((), ((), ()))
