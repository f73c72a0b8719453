"""A class of transformers for `import hf`: its family, vocabulary and text files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator, BaseModel

from ...export.comparison import Pair
from ...files import MAX_VOCABULARY_BYTES, check_regular, read_json_object
from ...text.subwords import copy_subwords
from ...translate.directions import LANGUAGE
from ...translate.model_json import DirectionsJson, Language
from ..families import ACTIVATION_NAMES, ModelFamily, State
from .vocabulary import ADVICE, PIECES, Vocabulary

#: classes of tokenizers that read only ``tokenizer.json``
GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")


def _check_languages(value: str) -> str:
    if not all(map(LANGUAGE.fullmatch, value.split("+"))):
        raise ValueError("must be a language's code such as en, or several such as deu+eng")
    return value


#: one language, or in Marian's folders several
Languages = Annotated[str, AfterValidator(_check_languages)]


class NewToken(BaseModel, strict=True):
    """A token that a tokenizer has in addition to its vocabulary."""

    content: str


class Texts(BaseModel, strict=True):
    """The options of ``tokenizer_config.json`` that the import uses, and added tokens by id.

    Without a ``tokenizer_class`` there, as in published mBART-50 folders, it is read from
    ``config.json``.
    """

    source_lang: Languages | None = None
    target_lang: Languages | None = None
    src_lang: Language | None = None  # of multilingual models
    tgt_lang: Language | None = None
    tokenizer_class: str | None = None
    legacy_behaviour: bool = False
    language_codes: str | None = None
    do_lower_case: bool | None = None
    directions: DirectionsJson | None = None  # of our own tokenizer
    added_tokens_decoder: dict[str, NewToken] = {}


class TokenizerClass(BaseModel, strict=True):
    """The tokenizer's class in ``config.json``."""

    tokenizer_class: str | None = None


class Family(ModelFamily):
    """Base class of the families that `import hf` reads."""

    #: names of the tokenizer's classes that the import supports, without the suffix ``Fast``; the
    #: first is the class of folders that name no class, as in `transformers.AutoTokenizer`
    tokenizer_classes: ClassVar[tuple[str, ...]]
    headless_class: ClassVar[str]  # the name of the class without `heads`
    #: fairseq's parameters with a row for each token -> index of their vocabulary
    token_tables: ClassVar[dict[str, int]]
    optional: ClassVar[str] = r"(?!)"  # pattern of the parameters that a folder may lack
    #: pattern of the parameters of heads that are left out if the folder lacks them
    heads: ClassVar[str] = r"(?!)"
    pieces: ClassVar[str] = PIECES  # the SentencePiece model
    #: pattern of fairseq's parameters that the class lacks and no training changes
    untrained: ClassVar[str] = r"(?!)"

    def tokenizer_class(self, texts: Texts) -> str:
        """The name of the folder's tokenizer class, without the suffix ``Fast``."""
        return (texts.tokenizer_class or self.tokenizer_classes[0]).removesuffix("Fast")

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        """fairseq's options, ``arch`` among them, for a folder with these parameters."""
        options = {name: getattr(config, key) for name, key in self.option_names.items()}
        activation = ACTIVATION_NAMES[options["activation_fn"]]
        return options | self.options | {"activation_fn": activation}

    def is_headless(self, tensors: Mapping[str, Any]) -> bool:
        """Whether an encoder's folder with these parameters has none of the class's heads."""
        names = (name for name in tensors if re.fullmatch(self.all_heads, name))
        return self.base_class is not None and not any(names)

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        """The dictionaries of source and target, or an encoder's only dictionary."""
        raise NotImplementedError

    def symbols(self, folder: Path) -> dict[str, str]:
        """Symbols of the dictionary by tokens of the folder's tokenizer, where they differ."""
        return {}

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        """The parameters of fairseq's model from the parameters in transformers."""
        state = self.fairseq_state(tensors)
        for name, index in self.token_tables.items():
            if name in state:  # an encoder may have no head
                state[name] = vocabularies[index].rows(state[name])
        for name in self.position_tables:
            table = state[name][self.first_row :]
            unused = table.new_zeros(2, table.size(1))  # fairseq's rows 0 and 1, of padding
            state[name] = torch.cat([unused, table])
        return state

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        """The inverse of `convert`, except that names stay fairseq's names."""
        state = dict(state)
        for name, index in self.token_tables.items():
            if name in state:
                state[name] = vocabularies[index].original_rows(state[name])
        for name in self.position_tables:
            state[name] = state[name][2 - self.first_row :]
        return state

    def write_text(self, folder: Path, out: Path) -> dict[str, Any]:
        """Write the files of the subword model.

        Returns:
            the fields of `ModelDescription` that a translation model needs
        """
        check_regular(folder / self.pieces, MAX_VOCABULARY_BYTES)
        model = copy_subwords("sentencepiece", folder / self.pieces, out)
        return {"subwords": "sentencepiece", "subword_model": model}

    def output_pairs(
        self, model: Any, reference: Any, vocabularies: list[Vocabulary]
    ) -> list[Pair]:
        """Outputs of fairseq's model and of transformers' model on random sentences."""
        raise NotImplementedError


def read_texts(folder: Path) -> Texts:
    """The folder's ``tokenizer_config.json``, or the defaults without this file."""
    path = folder / "tokenizer_config.json"
    texts = read_json_object(path, Texts, advice=ADVICE) if path.exists() else Texts()
    if texts.tokenizer_class is not None:
        return texts
    config = read_json_object(folder / "config.json", TokenizerClass, advice=ADVICE)
    return texts.model_copy(update=config.model_dump())
