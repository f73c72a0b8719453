"""Messages for errors that fairseq, PyTorch and the system raise over a user's mistake."""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from types import TracebackType

from ..config import flag
from ..errors import chain, one_line, user_error_behind

#: A pattern of the exception's text, and the message for it.
FOUND_BY_FAIRSEQ = [
    (
        r"No such file or directory: '(?P<file>.*dict\.(?:[^/]*\.)?txt)'",
        "there is no dictionary {file}: give the folder that fairseq-preprocess wrote, and the "
        "languages that it was written for",
    ),
    (
        r"Could not infer language pair",
        "there is no prepared data in the folder given: give the one that fairseq-preprocess "
        "wrote, or name the languages by --source-lang and --target-lang",
    ),
    (
        r"Dataset not found: (?P<split>\S+) \((?P<folder>.*)\)",
        "there is no data of the split {split} in {folder}: give the folder that "
        "fairseq-preprocess wrote, or another split",
    ),
    (
        r"Size of sample #(?P<number>\d+) is invalid \(=(?P<size>\d+)\) since "
        r"max_positions=(?P<limit>\d+), skip",
        "sample {number} has {size} tokens, but the model takes at most {limit}: give a smaller "
        "--tokens-per-sample, leave it out by --skip-invalid-size-inputs-valid-test, or train with "
        "a larger --max-positions",
    ),
    (
        r"Size of sample #(?P<number>\d+) is invalid \(=(?P<size>.*)\) since "
        r"max_positions=(?P<limit>.*), skip",
        "sentence {number} has {size} tokens (source, target), but the model takes at most "
        "{limit}: shorten it, leave it out by --skip-invalid-size-inputs-valid-test, or train with "
        "larger --max-source-positions and --max-target-positions",
    ),
    (
        r"^Target (?P<label>\d+) is out of bounds",
        "a label has number {label} (counting from 0), but the model has fewer classes: give a "
        "larger --num-classes, or take --task glue, which counts them",
    ),
    (
        # raised where the processes were started, of which one ended with our error
        r"diet_fairseq\.errors\.UserError: (?P<text>[^\n]+)",
        "{text}",
    ),
    (
        r"process (?P<rank>\d+) terminated with signal (?P<signal>\w+)",
        "process {rank} of this run was ended by {signal} (SIGKILL: often for lack of memory): run "
        "the same command to resume from the last checkpoint",
    ),
    (
        r"Connection (closed|reset) by peer",
        "another process of this run has ended: see its output, and start all of them again "
        "to resume from the last checkpoint",
    ),
    (
        r"chosen optimizer (?P<name>\w+) does not support flat params",
        "--fp16 flattens all parameters into one vector, but the optimizer {name} needs each "
        "one by itself: add --fp16-no-flatten-grads, or take --bf16",
    ),
    (
        r"Unsupported optimizer: (?P<name>\w+)",
        "--memory-efficient-fp16 and --memory-efficient-bf16 keep no float32 copy of the "
        "parameters, which the optimizer {name} needs: take --fp16 or --bf16, or --optimizer adam",
    ),
    (
        r"^Must specify batch size either with --max-tokens or --batch-size",
        "the size of a batch is missing: give --max-tokens N or --batch-size N",
    ),
    (r"^--path required for generation", "--path is missing: name the checkpoint to use"),
    (
        r"^--sampling requires --nbest to be equal to --beam",
        "--sampling returns every sample it draws, so --nbest must equal --beam: make them equal",
    ),
    (
        r"^--batch-size cannot be larger than --buffer-size",
        "--batch-size must be at most --buffer-size, the number of lines read at a time: raise "
        "--buffer-size",
    ),
    (
        r"^min_len cannot be larger than max_len",
        "--min-len is larger than the longest translation allowed (--max-len-a times the source's "
        "length, plus --max-len-b, and the model's --max-target-positions): lower it",
    ),
    (
        r"exceeds max_tokens limit of|^Sentences lengths should not exceed max_tokens=",
        "--max-tokens is smaller than a sentence of the data: raise it",
    ),
    (r"^optimizer is required", "--optimizer is missing: take --optimizer fused_adamw or adam"),
    (r"^Please specify criterion", "--criterion is missing: name one"),
    (
        r"^embed_dim must be divisible by num_heads",
        "a width can't be split among the attention heads: change --encoder-embed-dim or "
        "--encoder-attention-heads, or the decoder's",
    ),
    (
        r"^--share-all-embeddings requires a joined dictionary",
        "--share-all-embeddings needs one dictionary for both languages: leave it out, or prepare "
        "the data by fairseq-preprocess --joined-dictionary",
    ),
    (
        r"^Cannot use a fixed learning rate schedule with (?P<name>[\w-]+)",
        "--lr-scheduler {name} takes one --lr, not a list: give one, or take --lr-scheduler fixed",
    ),
    (
        r"^(?P<file>\S*dict\.\S+\.txt)$",
        "{file} already exists: name another --destdir, or remove that folder to prepare the "
        "data again",
    ),
    (
        r"^--finetune-from-model (?P<file>.*) does not exist$",
        "there is no checkpoint {file}: check --finetune-from-model",
    ),
    (
        r"^--finetune-from-model and --restore-file .*can not be specified together",
        "--finetune-from-model starts a run and --restore-file resumes one: give one of them",
    ),
    (
        r"^Cannot find dataset: (?P<split>\S+)",
        "there is no data of the split {split}: give another --valid-subset",
    ),
    (
        r"^Cannot resume training due to dataloader mismatch",
        "the checkpoint stands further in its epoch than the data has batches: resume with the "
        "data, --max-tokens, --batch-size and number of GPUs that it was saved with, or begin the "
        "epoch anew by --reset-dataloader",
    ),
    (r"^please specify steps or phase_ratio", "--lr-scheduler tri_stage needs its --phase-ratio"),
    (
        r"^Error merging override (?P<part>\w+)\.(?P<flag>\w+)=null|"
        r"^Missing mandatory value: (?P<flag_>\w+)",
        "{flag} is missing, but another option needs it: give it",
    ),
    (
        r"^Interpolation key '(?P<part>criterion|task)\.(?P<flag>\w+)' not found",
        "the --{part} has no {flag}, which another part of the training takes from it: give a "
        "--task, a --criterion and an --arch that belong together, as --task sentence_prediction "
        "and --criterion sentence_prediction",
    ),
    (
        r"^Interpolation key '(?P<name>[^'\n]*)' not found",
        "an option's value holds ${{{name}}}, which Hydra would look up: give one without ${{ }}",
    ),
    (
        r"^selected index k out of range",
        "more words are asked for than the dictionary holds: lower --sampling-topk or --beam",
    ),
    (r"^file (?P<file>.*) not found$", "there is no file {file}: check the path"),
    (
        r"could not parse ModelProto from (?P<file>.*)",
        "{file} is not a SentencePiece model, or is damaged: give another",
    ),
    (
        r"^'utf-?8' codec can't decode byte (?P<byte>\w+)",
        "a text is not in UTF-8 (it has the byte {byte}): convert the file that was given",
    ),
    # fairseq's messages about options and packages that are clear enough as they are.
    (r"^(?P<text>cannot use both --[^\n]{1,200})$", "{text}"),
    (r"^(?P<text>--\w[^\n]{1,200})$", "{text}"),
    (r"^\s*(?P<text>Please install [^\n]{1,200})", "{text}"),
]

#: What is wrong with a path that the user named.
PATHS = {
    errno.ENOENT: "there is no such file or folder: check the path",
    errno.EISDIR: "it is a folder, but a file is needed: name a file",
    errno.ENOTDIR: "a file stands where a folder is needed: name another folder",
    errno.EEXIST: "a file stands where a folder is needed: name another folder",
    errno.EACCES: "it may not be read or written: fix its permissions, or name another",
    errno.EPERM: "it may not be read or written: fix its permissions, or name another",
    errno.EROFS: "nothing can be written there: name another",
}


def in_words(error: BaseException) -> str | None:
    """The message for ``error``, if it comes from a mistake of the user that is known here."""
    text = re.sub(r"np\.\w+\((\d+)\)", r"\1", str(error))
    for pattern, said in FOUND_BY_FAIRSEQ:
        if found := re.search(pattern, text):
            parts = {name.rstrip("_"): part for name, part in found.groupdict().items() if part}
            if "flag" in parts:
                parts["flag"] = flag(parts["flag"])
            return said.format(**parts)
    if isinstance(error, OSError) and error.errno in PATHS:
        path = str(error.filename)
        option = naming(path, sys.argv[1:])
        if option is not None:
            return f"{option} {path}: {PATHS[error.errno]}".lstrip()
    return None


def naming(path: str, words: Iterable[str]) -> str | None:
    """The option of a command line that names ``path``, or what it begins with ("": no option).

    None: the user did not name it. An error over it is not the user's, and keeps its traceback.
    """
    whole, option, found = os.path.abspath(path), "", []
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("--") else (option, "=", word)
        option = "" if equals else flag
        for part in filter(None, re.split("[:,]", value)):
            if part.isdigit():  # --seed 1 names no file
                continue
            begin = os.path.abspath(part)
            # a folder of it, or a prefix such as that of --trainpref
            if whole == begin or whole.startswith((begin.rstrip("/") + "/", begin + ".")):
                found.append((len(begin), flag))
    return max(found)[1] if found else None


def mistake_behind(error: BaseException | None) -> str | None:
    """The message for ``error``, if it comes from a user's mistake."""
    mistake = user_error_behind(error)
    if mistake is not None:
        return str(mistake)
    for cause in chain(error):
        if said := in_words(cause):
            return said
    return None


def reported(excepthook: Callable) -> Callable:
    """End the program with the message alone on an uncaught mistake; other errors are unchanged."""

    @wraps(excepthook)
    def wrapper(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        mistake = mistake_behind(error)
        if mistake is None:
            excepthook(kind, error, trace)
        else:
            sys.stdout.flush()
            print(f"error: {one_line(mistake)}", file=sys.stderr)

    return wrapper
