"""Errors of fairseq, PyTorch and the system over a user's mistake are said in words, row by row."""

import errno
import os
import re
import sys

import pytest

from diet_fairseq.errors import UserError, one_line
from diet_fairseq.patches.explaining import (
    FOUND_BY_FAIRSEQ,
    PATHS,
    in_words,
    mistake_behind,
    naming,
)

#: what was raised, as its text -> what is said of it, in part
RAISED = {
    "[Errno 2] No such file or directory: 'data/dict.de.txt'": "there is no dictionary "
    "data/dict.de.txt: give the folder that fairseq-preprocess wrote, and the languages that",
    "[Errno 2] No such file or directory: 'data/dict.txt'": "there is no dictionary data/dict.txt:",
    "Could not infer language pair, please provide it explicitly": "there is no prepared data in",
    "Dataset not found: valid (data)": "there is no data of the split valid in data: give the",
    "Size of sample #3 is invalid (=20) since max_positions=10, skip this example with "
    "--skip": "sample 3 has 20 tokens, but the model takes at most 10: give a smaller",
    "Size of sample #3 is invalid (=(np.int32(20), 4)) since max_positions=(10, 10), skip this": ""
    "sentence 3 has (20, 4) tokens (source, target), but the model takes at most (10, 10): shorten "
    "it",
    "Target 2 is out of bounds.": "a label has number 2 (counting from 0)",
    "-- Process 1 terminated\ndiet_fairseq.errors.UserError: no such thing\n": "no such thing",
    "process 1 terminated with signal SIGKILL": "process 1 of this run was ended by SIGKILL",
    "Connection closed by peer [127.0.0.1]": "another process of this run has ended",
    "chosen optimizer lamb_torch does not support flat params": "the optimizer lamb_torch needs",
    "Unsupported optimizer: lamb_torch": "which the optimizer lamb_torch needs",
    "Must specify batch size either with --max-tokens or --batch-size": "the size of a batch is "
    "missing: give --max-tokens N or --batch-size N",
    "--path required for generation!": "--path is missing: name the checkpoint to use",
    "--sampling requires --nbest to be equal to --beam": "so --nbest must equal --beam",
    "--batch-size cannot be larger than --buffer-size": "must be at most --buffer-size",
    "min_len cannot be larger than max_len, please adjust these!": "--min-len is larger than the",
    "sentence at index 3 of size 9 exceeds max_tokens limit of 5!": "--max-tokens is smaller than",
    "Sentences lengths should not exceed max_tokens=5": "--max-tokens is smaller than",
    "optimizer is required!": "--optimizer is missing: take --optimizer fused_adamw or adam",
    "Please specify criterion to train a model": "--criterion is missing: name one",
    "embed_dim must be divisible by num_heads": "a width can't be split among the attention heads",
    "--share-all-embeddings requires a joined dictionary": "needs one dictionary for both",
    "Cannot use a fixed learning rate schedule with inverse_sqrt. Consider": "--lr-scheduler "
    "inverse_sqrt takes one --lr, not a list: give one",
    "data-bin/dict.de.txt": "data-bin/dict.de.txt already exists: name another --destdir",
    "--finetune-from-model a.pt does not exist": "there is no checkpoint a.pt: check --finetune",
    "--finetune-from-model and --restore-file (non-default value) can not be specified together: "
    "{'_name': None}": "starts a run and --restore-file resumes one: give one of them",
    "Cannot find dataset: nosuch": "there is no data of the split nosuch: give another",
    "Cannot resume training due to dataloader mismatch, please report this": "resume with the data,"
    " --max-tokens, --batch-size and number of GPUs that it was saved with, or begin the epoch",
    "please specify steps or phase_ratio": "--lr-scheduler tri_stage needs its --phase-ratio",
    "Error merging override lr_scheduler.total_num_update=null": "--total-num-update is missing",
    "Missing mandatory value: sentencepiece_model\n    full_key: ": "--sentencepiece-model is miss",
    "Interpolation key 'criterion.regression_target' not found\n    full_key": "the --criterion "
    "has no --regression-target, which another part of the training takes from it: give a --task,",
    "Interpolation key 'x' not found\n    full_key": "holds ${x}, which Hydra would look up: give "
    "one without ${ }",
    "selected index k out of range": "lower --sampling-topk or --beam",
    "file nosuch.model not found": "there is no file nosuch.model: check the path",
    "INTERNAL: could not parse ModelProto from a.model": "a.model is not a SentencePiece model",
    "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte": "a text is not in "
    "UTF-8 (it has the byte 0xff): convert the file that was given",
    "cannot use both --srcdict and --tgtdict with --joined-dictionary": "cannot use both --srcdict",
    "--sampling-topk requires --sampling": "--sampling-topk requires --sampling",
    "\n\nPlease install the megatron submodule:\n\n  git": "Please install the megatron submodule",
}


@pytest.mark.parametrize("raised", RAISED)
def test_a_row_says_what_to_do(raised):
    said = in_words(Exception(raised))
    assert said is not None
    assert RAISED[raised] in said
    assert "\n" not in said
    assert mistake_behind(UserError("ours")) == "ours"


def test_every_row_has_an_example_that_no_row_before_it_takes():
    examples = [re.sub(r"np\.\w+\((\d+)\)", r"\1", raised) for raised in RAISED]
    taken = {
        next(row for row, (pattern, _) in enumerate(FOUND_BY_FAIRSEQ) if re.search(pattern, text))
        for text in examples
    }
    assert taken == set(range(len(FOUND_BY_FAIRSEQ)))


@pytest.mark.parametrize("raised", ["'x'", "index out of range", "mat1 and mat2 shapes", ""])
def test_what_may_be_a_fault_of_the_program_s_keeps_its_traceback(raised):
    assert in_words(Exception(raised)) is None


@pytest.mark.parametrize("number", PATHS)
def test_a_path_of_the_user_s_that_can_not_be_used_is_named_with_its_option(number, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "data", "--log-file", "logs/a", "--cpu"])
    for path, named in [("logs/a", "--log-file logs/a"), ("data/x/y", "data/x/y")]:
        error = OSError(number, os.strerror(number), path)
        assert in_words(error) == f"{named}: {PATHS[number]}"
    assert in_words(OSError(number, os.strerror(number), "elsewhere")) is None
    assert in_words(OSError(errno.EIO, os.strerror(errno.EIO), "logs/a")) is None


@pytest.mark.parametrize(
    ("words", "path", "option"),
    [
        ("--path a.pt:b.pt --beam 3", "b.pt", "--path"),
        ("--validpref=one,two -s de", "two.de", "--validpref"),
        ("data --path data", "data", "--path"),
        ("data --log-file data/x", "data/x", "--log-file"),
        ("data --log-file data/x", "data/y", ""),
        ("--cpu data", "/nowhere/data", None),
        ("--quiet --path a", "b", None),
        ("--trainpref text --save-dir te", "text.en", "--trainpref"),
        ("--save-dir c", "corpus.txt", None),
        ("--seed 1", "10.json", None),
        ("--seed 10", "10.json", None),
    ],
)
def test_the_option_is_the_one_that_names_the_path(words, path, option):
    assert naming(path, words.split()) == option


def test_a_name_with_control_characters_is_spelled_out_on_one_line(capsys):
    error = UserError("there is no ä\x1b[2J\nfile \u2028 \udcff")
    sys.excepthook(UserError, error, None)
    said = "there is no ä\\x1b[2J\\nfile \\u2028 \\udcff"
    assert one_line(str(error)) == said
    assert capsys.readouterr().err == f"error: {said}\n"
