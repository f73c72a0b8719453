"""README, and the pages that it links to, lead a reader from nothing to a result.

The commands are run as printed, from top to bottom, in an empty folder, with numbers for a corpus
of two hundred sentences.
"""

import re
import subprocess
import time
from pathlib import Path
from shutil import copy

import pytest
import yaml
from config_keys import Translation

from diet_fairseq.text.scores import score
from tests.support import originals
from tests.support.pages import (
    BLOCK,
    MARKDOWN,
    ROOT,
    Block,
    first_block,
    marked_blocks,
    run_block,
    run_blocks,
    section_of,
    text_of,
    write_own_scheme,
)
from tests.support.texts import corpus, sentences, write

TRAINING, USING, GUIDE = "docs/training.md", "docs/using-a-model.md", "CONTRIBUTING.md"
WITH_FAIRSEQ = "Use it with fairseq"
OWN_DATA = "Train on your own data"
OTHER_POSITIONS = "Start from another model"
OWN_SCHEME = "A new scheme is one file"
#: pages whose blocks run with the files of docs/training.md
PAGES = (USING, "docs/schemes.md", "docs/look.md", "docs/design.md")
FROM_ELSEWHERE = "docs/hugging-face.md"
DATA = "docs/data.md"
WALKS = ("README.md", "docs/quickstart.md", TRAINING, GUIDE, FROM_ELSEWHERE, DATA)
SMALLER = {"--max-tokens 4096": "--max-tokens 400", "--max-update 5000": "--max-update 6"}
SMALLER_ADAPTER = {"max_steps=1000": "max_steps=4", "batch_size=32": "batch_size=8"}
SMALLER_ENCODER = {
    "-s 32000": "-s 60",
    "_base": "_tiny",
    "--tokens-per-sample 512": "--tokens-per-sample 64",
    "--batch-size 16 --update-freq 16": "--batch-size 4",
    "--max-update 1000000 --bf16": "--max-update 2",
}
SMALLER_CONFIG = "vocabulary: 100\nbatch: 400\nwarmup: 4\n"
#: a stock model of the size `_tiny`
STOCK = """
fairseq-train data-bin --arch transformer --share-all-embeddings --optimizer adam --lr 0.001 \
    --encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
    --encoder-attention-heads 4 --decoder-layers 4 --decoder-embed-dim 128 \
    --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 --max-tokens 400 --max-update 4 \
    --save-dir stock
mv stock/checkpoint_last.pt stock.pt
"""


def test_the_config_of_the_quickstart_is_valid():
    Translation.model_validate(yaml.safe_load(first_block(text_of("docs/quickstart.md"), "yaml")))


def is_running(pid: int) -> bool:
    """Whether a process has not ended, and does not only wait for its parent."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


@pytest.mark.slow
def test_a_block_that_runs_out_of_time_ends_what_it_started(tmp_path):
    block = Block("run", "sh", "sleep 60 & echo $! >pid; wait")
    with pytest.raises(subprocess.TimeoutExpired):
        run_block(block, tmp_path, limit=1)
    pid, end = int((tmp_path / "pid").read_text()), time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < end


def test_every_marked_block_is_run_by_a_test():
    marked = {page for page in MARKDOWN if marked_blocks(text_of(page))}
    assert marked == {*PAGES, *WALKS}


@pytest.mark.parametrize(
    ("page", "section"),
    [
        (TRAINING, "Translation"),
        (USING, OTHER_POSITIONS),
        (GUIDE, OWN_SCHEME),
    ],
)
def test_the_readme_links_to_the_pages_of_the_walks(page, section):
    assert f"({page}" in text_of("README.md")
    assert section_of(page, section)


def test_the_training_page_has_and_runs_the_commands_of_the_readme():
    [(_, commands)] = BLOCK.findall(section_of("README.md", WITH_FAIRSEQ))
    run = "".join(block.text for block in marked_blocks(text_of(TRAINING)))
    assert all(command in run for command in re.split(r"(?<!\\)\n", commands))


@pytest.mark.slow
def test_from_two_text_files_to_a_served_model(tmp_path):
    section = section_of("README.md", OWN_DATA)
    for language, seed in (("en", 1), ("de", 2)):
        write(tmp_path / f"text.{language}", sentences(124, seed=seed))
    config = first_block(section, "yaml") + SMALLER_CONFIG
    (tmp_path / "mine.yaml").write_text(re.sub(r"updates: \d+", "updates: 6", config))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = marked_blocks(section, {"2000": "24", "1000": "12"})
    _, trained, answer = run_blocks(blocks, tmp_path)
    assert "| diet_rel, tiny |" in trained
    assert '{"translatedText":"' in answer

    (tmp_path / "demo").symlink_to("mine")  # the quickstart goes on with such a folder
    outputs = run_blocks(marked_blocks(text_of("docs/quickstart.md")), tmp_path)
    assert len(outputs) == 6
    assert (tmp_path / "heads" / "index.html").exists()


@pytest.mark.slow
def test_from_text_of_one_language_to_a_distilled_model(tmp_path):
    corpus(tmp_path, train=60, odd=False)
    write(tmp_path / "mono.de", sentences(30, seed=5))
    scored = ["Ein Hund.\tA dog.\t0.91", "Eins.\tTwo.\t0.5", "Rot.\tNo.\t0.499"]
    write(tmp_path / "scored.tsv", scored)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text = text_of(DATA)
    for language, block in BLOCK.findall(text):
        if language == "yaml" and (name := re.match(r"folder: (\w+)\n", block)):
            config = re.sub(r"updates: \d+", "updates: 6", block) + SMALLER_CONFIG
            (tmp_path / f"{name[1]}.yaml").write_text(config)
    _, counts, _, trained, _ = run_blocks(marked_blocks(text), tmp_path)
    assert re.search(r"^  repeated +60 ", counts, re.MULTILINE)
    assert "| diet_rel, tiny |" in trained
    for name in ("synthetic", "distilled"):
        source, target = ((tmp_path / f"{name}.{lang}").read_text() for lang in ("en", "de"))
        assert source.count("\n") == target.count("\n") > 0
    assert (tmp_path / "filtered.en").read_text().splitlines() == ["Ein Hund.", "Eins."]
    assert (tmp_path / "filtered.de").read_text().splitlines() == ["A dog.", "Two."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder in which a reader has followed docs/training.md."""
    folder = corpus(tmp_path_factory.mktemp("docs"), train=200, odd=False)
    section = section_of(TRAINING, "Translation")
    smaller = {"-s 8000": "-s 60", "--save-interval-updates 250": "--save-interval-updates 1"}
    run_blocks(marked_blocks(section, SMALLER | smaller), folder)
    return folder


@pytest.mark.slow
def test_from_fairseq_generate_to_a_score(folder):
    [printed] = run_blocks(marked_blocks(section_of(TRAINING, "Score")), folder)
    assert '"signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|' in printed
    pairs = re.findall(r"^D-(\d+)\t\S+\t(.*)$", (folder / "test.out").read_text(), re.MULTILINE)
    lines = [line for _, line in sorted(pairs, key=lambda pair: int(pair[0]))]
    references = (folder / "test.de").read_text().splitlines()
    scores = score(lines, references)  # a workflow's; chrF of so short a training is not 0
    assert scores["chrF"] > 0.1
    assert all(f'"score": {scores[name]:.2f}' in printed for name in ("BLEU", "chrF"))


@pytest.mark.slow
def test_from_two_pairs_of_languages_to_a_translation(tmp_path):
    corpus(tmp_path, train=60, odd=False)
    for split in ("train", "valid"):
        for language in ("de", "fr"):
            copy(tmp_path / f"{split}.de", tmp_path / f"{split}.{language}-en.{language}")
            copy(tmp_path / f"{split}.en", tmp_path / f"{split}.{language}-en.en")
    blocks = marked_blocks(section_of(TRAINING, "Many languages"), SMALLER | {"-s 8000": "-s 60"})
    *_, trained = run_blocks(blocks, tmp_path)
    assert "num_updates 6" in trained
    data = tmp_path / "many-bin"
    assert (data / "train.fr-en.fr.bin").exists()
    assert (
        len({(data / f"dict.{language}.txt").read_text() for language in ("de", "en", "fr")}) == 1
    )
    assert len((tmp_path / "many.out").read_text().splitlines()) == 12


@pytest.mark.slow
def test_from_text_with_lines_longer_than_a_sample_to_an_encoder(tmp_path):
    for split, count in {"train": 60, "valid": 24}.items():
        lines = sentences(count, seed=count)
        write(tmp_path / f"{split}.txt", [*lines, " ".join(lines)])
    text = section_of(TRAINING, "Encoders") + section_of(TRAINING, "Fine-tuning")
    trained, exported = run_blocks(marked_blocks(text, SMALLER_ENCODER), tmp_path)
    assert trained.count("| 1 samples have invalid sizes and will be skipped") == 2
    assert "num_updates 2" in trained
    assert "encoder: DietForMaskedLM, " in exported


@pytest.mark.slow
def test_from_a_fairseq_checkpoint_to_other_positions(folder):
    run_block(Block("run", "sh", STOCK), folder)
    blocks = marked_blocks(section_of(USING, OTHER_POSITIONS), SMALLER | {"_iwslt_de_en": "_tiny"})
    swapped, generated = run_blocks(blocks, folder)
    assert "loading pretrained model from stock.pt" in swapped
    assert len((folder / "rope.out").read_text().splitlines()) == 12
    assert len(re.findall(r"^H-", generated, re.MULTILINE)) == 12


@pytest.mark.slow
def test_from_an_opus_mt_folder_to_other_positions_and_back(tmp_path):
    pytest.importorskip("peft", reason="the section about LoRA needs peft")
    originals.marian(tmp_path / "opus-mt-en-de", updates=100, d_model=32)
    originals.nllb(tmp_path / "nllb-200-distilled-600M")
    for part, count in (("test", 20), ("train", 60), ("valid", 20)):
        for language, lines in zip(
            ("en", "de"),
            zip(*originals.sentence_pairs(count, seed=count), strict=True),
            strict=True,
        ):
            write(tmp_path / f"{part}.{language}", list(lines))
    blocks = marked_blocks(text_of(FROM_ELSEWHERE), SMALLER | SMALLER_ADAPTER)
    outputs = run_blocks(blocks, tmp_path)
    imported, same, *_, swapped, exported, original, _, adapted, _, small, smaller = outputs[:-3]
    assert "to train on: --arch transformer_learned --finetune-from-model imported/m" in imported
    assert "20 of 20 translations are the same" in same
    assert "loading pretrained model from imported/model.pt" in swapped
    assert "DietForConditionalGeneration" in exported
    assert "opus-mt-further: MarianMTModel, " in original
    assert "trainable params: " in adapted
    assert "\ntrimmed the vocabulary from 100 tokens (" in small
    assert smaller.startswith("100 tokens (")
    for name in ("rope", "lora", "small", "tyv"):
        assert len((tmp_path / f"{name}.out").read_text().splitlines()) == 20


@pytest.mark.slow
def test_from_an_idea_to_a_new_scheme(folder):
    section = section_of(GUIDE, OWN_SCHEME)
    write_own_scheme(folder)
    listed, *_ = run_blocks(marked_blocks(section, SMALLER), folder)
    assert "turn: q and k are turned pair by pair" in listed


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_marked_blocks_of_a_page_run_from_top_to_bottom(page, folder):
    text = text_of(page)
    if page == USING:  # a walk of its own
        text = text.replace(section_of(page, OTHER_POSITIONS), "")
    blocks = marked_blocks(text)
    assert run_blocks(blocks, folder)
