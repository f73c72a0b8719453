"""BERT: ``BertForPreTraining``, or without the next-sentence head ``BertForMaskedLM``."""

from pathlib import Path
from typing import Any, ClassVar

from ...files import open_text
from .family import MASK, State, Vocabulary, read_pieces
from .masked_lm import MaskedLM

#: fairseq's symbols -> BERT's
SPECIAL_TOKENS = {"<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]",
                  MASK: "[MASK]"}  # fmt: skip
NSP = "cls.seq_relationship.weight"


class Bert(MaskedLM):
    """Segments at the input, a pooler, and the two next-sentence classes in reverse order."""

    model_class = "BertForPreTraining"
    headless_class = "BertForMaskedLM"
    allowed: ClassVar = MaskedLM.allowed | {
        "hidden_act": ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "tanh"),
    }
    names: ClassVar = MaskedLM.names | {
        r"bert\.pooler\.dense\.(.*)": r"pooler.\1",
        r"cls\.seq_relationship\.(.*)": r"nsp_head.\1",
    }
    optional = r"bert\.pooler\..*|cls\.seq_relationship\..*"
    heads = r"cls\.seq_relationship\..*"
    first_row = 0
    options: ClassVar = {"arch": "bert_learned", "segment_scheme": "input"}

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        options = super().fairseq_options(config, tensors)
        return options | {"num_segments": config.type_vocab_size, "nsp": NSP in tensors}

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        return [Vocabulary.from_tokens(read_words(folder), config.vocab_size, SPECIAL_TOKENS)]

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        return flip_classes(super().convert(tensors, vocabularies, config))

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        return flip_classes(super().restore(state, vocabularies, config))

    def write_text(self, folder: Path, out: Path) -> None:
        """Write the file of ``--bpe bert --bpe-vocab-file``."""
        tokens = sorted((number, token) for token, number in read_words(folder).items())
        (out / "vocab.txt").write_text("".join(f"{t}\n" for _, t in tokens), encoding="utf-8")


def flip_classes(state: State) -> State:
    """The state with the two next-sentence classes exchanged."""
    names = {"nsp_head.weight", "nsp_head.bias"} & state.keys()
    return state | {name: state[name].flip(0) for name in names}


def read_words(folder: Path) -> dict[str, int]:
    """The ids of words and word pieces in ``vocab.txt``, or else in ``tokenizer.json``."""
    path = folder / "vocab.txt"
    if not path.exists():
        return read_pieces(folder)
    with open_text(path, newline="\n") as file:
        return {line.rstrip("\r\n"): number for number, line in enumerate(file)}


FAMILY = Bert()
