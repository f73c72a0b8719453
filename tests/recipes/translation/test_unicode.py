"""Ten thousand lines of random Unicode keep their places from text to translation."""

import random
import unicodedata

import pytest
from fairseq.data import Dictionary

from diet_fairseq.recipes.translation.corpora import WMT18
from tests.support import commands as fairseq
from tests.support.road import ODD, run, subwords, text, use, write

LINES = 10_000


def random_line(draw: random.Random) -> str:
    """Any code points but surrogates and the newline; or odd ones; or few kinds, many times."""
    kind = draw.randrange(4)
    length = draw.choice((0, 1, 3, 8, 20, 40))
    if kind == 0:
        chars = [chr(draw.randrange(0xD800)) for _ in range(length)]
    elif kind == 1:
        chars = [chr(draw.randrange(0xE000, 0x110000)) for _ in range(length)]
    elif kind == 2:
        chars = draw.choices(ODD + "ab ", k=length)
    else:
        chars = draw.choices(
            ["ein ", "é", "e\u0301", "ß ", "中", "ا", "😀", " ", "<unk>"], k=length
        )
    return "".join(chars).replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize("bpe", subwords.KINDS)
def test_no_line_is_lost_or_shifted(tmp_path, monkeypatch, bpe):
    use(monkeypatch)
    draw = random.Random(1)
    texts = {}
    for split in ("train", "valid", "test"):
        for language in ("en", "de"):
            number = LINES if split != "valid" else 100
            texts[split, language] = [random_line(draw) for _ in range(number)]
            write(tmp_path / f"{split}.{language}", texts[split, language])
    assert any(unicodedata.category(char) == "Cn" for char in "".join(texts["test", "en"]))
    folder = tmp_path / "road"
    run(WMT18, "prepare", "en", "de", "--from-dir", tmp_path, "--folder", folder,
        "--vocabulary", 2000, "--bpe", bpe, "--workers", 2)  # fmt: skip

    small = {"layers": 1, "embed-dim": 8, "ffn-embed-dim": 8, "attention-heads": 2}
    shape = [f"--{side}-{name}={n}" for side in ("encoder", "decoder") for name, n in small.items()]
    run(WMT18, "train", "diet_rel", "en", "de", "--folder", folder, "--gpus", 0,
        "--size", "tiny", "--updates", 3, *shape)  # fmt: skip

    words = Dictionary.load(str(folder / "data-bin" / "dict.en.txt"))
    assert len(words) <= 2008
    coded = list(text.read_lines(folder / "encoded" / "test.en"))
    assert len(coded) == LINES
    printed = fairseq.run(
        *("generate", folder / "data-bin", "--path"),
        folder / "runs" / "diet_rel-tiny-en-de" / "checkpoint_last.pt",
        *("--beam", 1, "--max-len-b", 5, "--max-len-a", 0, "--max-tokens", 20000, "--cpu"),
        *("-s", "en", "-t", "de"),
        limit=600,
    )
    assert printed.status == 0, printed.text
    sources, found = {}, set()
    for line in printed.out.split("\n"):
        name, _, rest = line.partition("\t")
        if name.startswith("S-"):
            sources[int(name[2:])] = rest
        elif name.startswith("H-"):
            found.add(int(name[2:]))
    assert found == set(range(LINES))
    for number, line in enumerate(coded):
        known = " ".join(word if word in words else "<unk>" for word in line.split())
        assert sources.get(number, "").replace("<<unk>>", "<unk>") == known

    some = write(tmp_path / "some", texts["test", "en"][:500])
    options = ("--size", "tiny", "--average", 0, "--beam", 1, "--input", some, "--output", tmp_path)
    run(WMT18, "evaluate", "diet_rel", "en", "de", "--folder", folder, "--gpus", 0, *options)
    assert (tmp_path / "translations.txt").read_bytes().count(b"\n") == 500
