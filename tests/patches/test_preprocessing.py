"""Only a newline ends a line of the text that fairseq-preprocess reads."""

import pytest
from fairseq import binarizer
from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
from fairseq.data import Dictionary, data_utils

TEXT = "a dog runs.\rMore.\nTom is here.\x85\u2028Yes.\n\nlast\r\n" * 3
LINES = [line.split() for line in TEXT.split("\n")[:-1]]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_carriage_return_within_a_line_is_white_space(tmp_path, workers):
    path = tmp_path / "train.en"
    path.write_bytes(TEXT.encode())
    dictionary = Dictionary()
    Dictionary.add_file_to_dictionary(str(path), dictionary, str.split, workers)
    dictionary.finalize(padding_factor=1)
    assert sum(dictionary.count) == sum(map(len, LINES)) + len(LINES) + dictionary.nspecial
    FileBinarizer.multiprocess_dataset(
        str(path), "mmap", VocabularyDatasetBinarizer(dictionary, str.split),
        str(tmp_path / "bin"), vocab_size=len(dictionary), num_workers=workers,
    )  # fmt: skip
    data = data_utils.load_indexed_dataset(str(tmp_path / "bin"), dictionary)
    assert [dictionary.string(line).split() for line in data] == LINES


@pytest.mark.parametrize("parts", [1, 2, 5, 50])
def test_parts_of_a_file_begin_where_lines_begin(tmp_path, parts):
    path = tmp_path / "text"
    path.write_bytes(TEXT.encode())
    offsets = binarizer.find_offsets(str(path), parts)
    assert len(offsets) == parts + 1
    assert (offsets[0], offsets[-1]) == (0, len(TEXT.encode()))
    assert all(TEXT.encode()[:offset].endswith(b"\n") for offset in offsets[1:])
