"""A JSON file of ours is read with its rule, or refused in one line."""

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.text.json_files import read_object

#: what may be in the file -> what is said of it
DAMAGED = {
    "": r"is damaged \(Expecting value: line 1",
    '{"bpe": "sp", "longest_li': r"is damaged \(Unterminated string",
    "[]": r"is damaged \(no JSON object\)",
    "{}": r"is damaged \(longest_line is null\)",
    '{"longest_line": "126"}': r'is damaged \(longest_line is "126"\)',
}


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_named_with_what_makes_a_good_one(tmp_path, content):
    path = tmp_path / "prepared.json"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"prepared\.json {DAMAGED[content]}.*: run it again$"):
        read_object(path, "run it again", longest_line=int)


def test_a_good_file_is_read_and_a_missing_one_refused(tmp_path):
    path = tmp_path / "prepared.json"
    with pytest.raises(UserError, match=r"can't be read \(No such file or directory\): run it"):
        read_object(path, "run it again")
    path.write_text('{"longest_line": 126}')
    assert read_object(path, "run it again", longest_line=int) == {"longest_line": 126}
