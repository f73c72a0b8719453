"""Smaller vocabularies of translation models, and tags of new languages.

`trim_vocabulary` and `add_languages` read a model folder with ``model.json`` and a fairseq
checkpoint, and write a new model folder. The dictionaries, the embeddings, the output projection
and the subword models change together; all other parameters stay.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf
from torch import Tensor

from .checkpoints.configuration import task_options
from .errors import UserError, one_line
from .files import atomic_folder, refuse_existing
from .models.growing import MASK, ROWS
from .patches import saving
from .text.languages import parse_language
from .text.lines import read_lines
from .text.sentences import split_sentences
from .text.subwords import GPT2_NUMBERS, SPECIAL_SYMBOL
from .text.tokenizer import Tokenizer
from .translate.directions import LANGUAGE, TARGET, Directions, read_task, summarize_names
from .translate.loading import keep_shared_model, load_dictionaries, load_model, read_checkpoint
from .translate.model_json import OPTIONS_FILE, ModelDescription, read_model_json

#: key of `trim_vocabulary`'s texts for files in any language of the model
ANY_LANGUAGE = "*"


@dataclass(frozen=True)
class VocabularySize:
    """The size of a model's vocabulary.

    Attributes:
        source: number of tokens in the source's dictionary, special symbols and tags included
        target: number of tokens in the target's dictionary
        bytes: size of all parameters in the checkpoint; tied parameters count once
    """

    source: int
    target: int
    bytes: int

    def __str__(self) -> str:
        tokens = f"{self.source:,} tokens"
        if self.source != self.target:
            tokens = f"{self.source:,} source and {self.target:,} target tokens"
        return f"{tokens} ({self.bytes:,} bytes of parameters)"


@dataclass
class Vocabulary:
    """The vocabulary of a model folder, with the checkpoint whose parameters have rows for it.

    Attributes:
        state: the content of the checkpoint
        dictionaries: the dictionaries of source and target, with the tokens that a task adds
    """

    description: ModelDescription
    state: dict[str, Any]
    dictionaries: list[Dictionary]

    @classmethod
    def read(cls, folder: Path) -> "Vocabulary":
        """The vocabulary of the model in ``folder``.

        Raises:
            UserError: the folder is not a fairseq model, its files can't be read or don't belong
                together, or its output layer is an adaptive softmax
        """
        description = read_model_json(folder)
        if description.engine != "fairseq" or description.checkpoint is None:
            raise UserError(
                f"{folder} is an exported model: give the folder of the checkpoint that it was "
                "exported from"
            )
        state = read_checkpoint(description.checkpoint)
        if task_options(state).get("_name") == "multilingual_translation":
            keep_shared_model(state, description)
        vocabulary = cls(description, state, load_dictionaries(description, state))
        vocabulary.check_rows()
        return vocabulary

    def check_rows(self) -> None:
        """Refuse a checkpoint whose tables don't have one row for each token."""
        checkpoint = self.description.checkpoint
        for name, table in self.tables():
            if "adaptive_softmax" in name:
                raise UserError(
                    f"{checkpoint} has an adaptive softmax, whose clusters depend on the order of "
                    "the dictionary: the vocabulary of such a model can't change"
                )
            size = len(self.dictionaries[get_side(name)])
            if len(table) != size:
                raise UserError(
                    f"{checkpoint} has {len(table):,} rows in {name}, but the dictionary has "
                    f"{size:,} tokens: give a folder whose files were made together"
                )

    def tables(self) -> Iterator[tuple[str, Tensor]]:
        """Names and values of the parameters with a row for each token."""
        for name, tensor in self.state["model"].items():
            if ROWS.fullmatch(name) or "adaptive_softmax" in name:
                yield name, tensor

    @property
    def size(self) -> VocabularySize:
        parameters = {tensor.data_ptr(): tensor.nbytes for tensor in self.state["model"].values()}
        source, target = map(len, self.dictionaries)
        return VocabularySize(source, target, sum(parameters.values()))

    @property
    def is_joined(self) -> bool:
        """Whether source and target have one dictionary, and may share their embeddings."""
        return self.dictionaries[0] == self.dictionaries[1]

    def special_tokens(self) -> set[str]:
        """The tags, and the tokens that ``model.json`` names or that the task adds."""
        description, marked = self.description, read_task(task_options(self.state))
        framing = description.all_directions.framing
        return {
            *description.all_directions.all_tags,
            *framing.source_tokens,
            *framing.target_tokens,
            *description.end_tokens,
            *(token for sequence in description.suppress_sequences for token in sequence),
            *(marked[1] if marked else ()),
        }

    def select(self, entries: Sequence[Sequence[tuple[str, int]]]) -> "Vocabulary":
        """The vocabulary with other tokens.

        Args:
            entries: for source and target, all tokens after the special symbols, each with the
                index of its row in this vocabulary
        """
        dictionaries, rows = [], []
        for old, tokens in zip(self.dictionaries, entries, strict=True):
            dictionary = Dictionary()
            for token, row in tokens:
                dictionary.add_symbol(token, n=old.count[row])
            dictionaries.append(dictionary)
            rows.append(torch.tensor([*range(old.nspecial), *(row for _, row in tokens)]))
        parameters, selected = dict(self.state["model"]), {}
        for name, table in self.tables():
            # tied tables stay one tensor
            memory = table.data_ptr(), table.dtype, table.shape, table.stride()
            if memory not in selected:
                selected[memory] = table[rows[get_side(name)]]
            parameters[name] = selected[memory]
        return Vocabulary(self.description, self.state | {"model": parameters}, dictionaries)

    def write(self, folder: Path) -> ModelDescription:
        """Write the model without its subword models into an empty folder.

        The dictionary's file contains all tokens, so the checkpoint's task becomes ``translation``,
        which adds none.

        Returns:
            the description for ``folder``, which still has to be written
        """
        old = self.description
        moved: dict[str, Any] = {"folder": folder}
        for name in ("checkpoint", "data", "subword_model", "target_subword_model"):
            path = getattr(old, name)
            moved[name] = path and folder / path.relative_to(old.folder)
        description = replace(old, **moved)
        assert description.checkpoint is not None
        assert description.data is not None
        for parent in (description.checkpoint.parent, description.data):
            parent.mkdir(parents=True, exist_ok=True)
        for name, dictionary in zip(self.dictionary_names(), self.dictionaries, strict=False):
            dictionary.save(str(description.data / name))
        if (old.folder / OPTIONS_FILE).is_file():
            shutil.copyfile(old.folder / OPTIONS_FILE, folder / OPTIONS_FILE)
        saving.save(self.checkpoint(), str(description.checkpoint))
        return description

    def dictionary_names(self) -> list[str]:
        """The names of the dictionaries' files; one name if all languages share a dictionary."""
        if self.description.directions is None:
            return [f"dict.{language}.txt" for language in self.description.languages]
        return ["dict.txt"] if self.is_joined else ["dict.SRC.txt", "dict.TGT.txt"]

    def checkpoint(self) -> dict[str, Any]:
        """The content of the new checkpoint, without the optimizer's state and averages."""
        state = dict(self.state)
        state.pop("last_optimizer_state", None)
        extra = state.get("extra_state") or {}
        averages = ("ema", "ema_fp32_params")
        state["extra_state"] = {key: extra[key] for key in extra if key not in averages}
        cfg: Any = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
        options = task_options(state)
        if read_task(options) is not None:
            limits = ("max_source_positions", "max_target_positions")
            config: Any = OmegaConf.structured(
                TranslationConfig(
                    source_lang=self.description.source_lang,
                    target_lang=self.description.target_lang,
                    **{
                        name: int(options[name]) for name in limits if options.get(name) is not None
                    },
                )
            )
            # interpolations refer to fairseq's other sections, and have their defaults there
            values = {
                key: config[key] for key in config if not OmegaConf.is_interpolation(config, key)
            }
            cfg["task"] = values | {"_name": "translation"}
        return state | {"cfg": cfg, "args": None}


def get_side(name: str) -> int:
    """The index of the dictionary for a parameter: 0 for the source, 1 for the target."""
    return int(name.startswith("decoder."))


# --- trimming


def trim_vocabulary(
    folder: Path, out: Path, texts: Mapping[str, Sequence[Path]]
) -> tuple[VocabularySize, VocabularySize]:
    """Write a model without the tokens that some texts don't need.

    The new model keeps the tokens of the texts, single characters, language tags and special
    symbols. Its subword models are restricted to these tokens: every line of the texts has the same
    tokens as before, and no text gets a token that was removed.

    Args:
        folder: folder with ``model.json`` and a fairseq checkpoint
        out: folder to write
        texts: language, or `ANY_LANGUAGE`, -> files with plain text, one line each sentence

    Returns:
        the sizes before and after

    Raises:
        UserError: ``out`` exists, a file can't be read, a language is not one of the model's
            languages, the texts have no tokens, or the model's kind is not supported
    """
    refuse_existing(out)
    with atomic_folder(out) as new_folder:
        return write_trimmed(folder, new_folder, texts)


def write_trimmed(
    folder: Path, out: Path, texts: Mapping[str, Sequence[Path]]
) -> tuple[VocabularySize, VocabularySize]:
    """Like `trim_vocabulary`, but ``out`` is a folder that exists."""
    old = Vocabulary.read(folder)
    tokens = collect_tokens(old.description, texts)
    if not any(tokens):
        raise UserError("the texts for the vocabulary contain no words: give other files")
    # the restriction of the subword models decides which tokens the dictionaries need
    producible = restrict_subwords(old.description, tokens, out)
    if old.is_joined or old.description.target_subword_model is None:
        producible = [producible[0] | producible[1]] * 2
    special = old.special_tokens()
    new = old.select(
        [
            [
                (token, row)
                for row, token in enumerate(dictionary.symbols)
                if row >= dictionary.nspecial
                and (token in needed or token in special or is_basic(token))
            ]
            for dictionary, needed in zip(old.dictionaries, producible, strict=True)
        ]
    )
    sizes = old.size, new.size
    new.write(out).write()
    del old, new  # a large model needs the memory
    load_model(read_model_json(out))  # checks the files
    return sizes


def collect_tokens(
    description: ModelDescription, texts: Mapping[str, Sequence[Path]]
) -> list[set[str]]:
    """The tokens of texts as the source and as the target of a model.

    The tokens of single sentences are included, because `Translator` splits lines into sentences.

    Raises:
        UserError: a file can't be read, or a language is not one of the model's languages
    """
    targets = description.all_directions.targets
    languages = [{*targets}, {name for names in targets.values() for name in names}]
    known = languages[0] | languages[1]
    if unknown := [name for name in texts if name not in known | {ANY_LANGUAGE}]:
        raise UserError(
            f"the language of a text must be one of the model's languages, "
            f"{summarize_names(sorted(known))}, but is {one_line(unknown[0])}: use the model's code"
        )
    tokens: list[set[str]] = [set(), set()]
    for language, paths in texts.items():
        for side, default in enumerate(description.tokenizers):
            tokenizer = default
            if language != ANY_LANGUAGE:
                if language not in languages[side]:
                    continue
                tokenizer = default.for_language(language)
            for path in paths:
                for line in read_lines(path):
                    tokens[side].update(encode_line_and_sentences(tokenizer, line))
    return tokens


def encode_line_and_sentences(tokenizer: Tokenizer, line: str) -> Iterator[str]:
    """The tokens of a line, and the tokens of its sentences."""
    yield from tokenizer.encode(line)
    sentences = split_sentences(tokenizer.normalise(line), tokenizer.language)
    if len(sentences) > 1:
        for sentence in sentences:
            yield from tokenizer.encode(sentence)
            yield from tokenizer.encode(sentence.strip(" "))


def restrict_subwords(
    description: ModelDescription, tokens: Sequence[set[str]], folder: Path
) -> list[set[str]]:
    """Write the subword models, restricted to tokens of source and target, into a folder.

    Returns:
        the tokens that the models of source and target can produce
    """
    models = [description.subword_model, description.target_subword_model]
    if models[1] is None:
        models, tokens = models[:1], [tokens[0] | tokens[1]]
    producible = []
    for model, tokenizer, own in zip(models, description.tokenizers, tokens, strict=False):
        copy = folder / (model.relative_to(description.folder) if model else "")
        copy.parent.mkdir(parents=True, exist_ok=True)
        producible.append(tokenizer.subwords.restrict(own, copy))
    return [producible[0], producible[-1]]


def is_basic(token: str) -> bool:
    """Whether a token is a single character or a mark such as <mask>, but not padding."""
    part = token.removesuffix("@@") if len(token) > 2 else token
    return len(part) == 1 or (SPECIAL_SYMBOL.fullmatch(token) is not None and token.startswith("<"))


# --- new languages


def add_languages(folder: Path, out: Path, new_languages: Mapping[str, str]) -> None:
    """Write a multilingual model that also has some new languages.

    A new language starts as a copy of a language of the model: its tag has the same embeddings, and
    its directions are the directions of that language. Until the model is trained further, it
    translates into the new language, and from it, as into and from the copied language. Other
    directions translate as before, as far as the model gives language tags no probability within
    translations.

    The tag stands at the end of the dictionary, before a ``<mask>`` at the end.

    Args:
        folder: folder with ``model.json`` and a fairseq checkpoint
        out: folder to write
        new_languages: code of a new language -> code of the language to copy

    Raises:
        UserError: ``out`` exists, a file can't be read, the model is bilingual, a new language is
            not a language's code or is a language of the model, its tag is a token of the model,
            the language to copy has no tag, or translations end with a tag
    """
    refuse_existing(out)
    vocabulary = Vocabulary.read(folder)
    directions = vocabulary.description.directions
    if directions is None or not directions.tags:
        raise UserError(
            f"{folder} has no language tags, so a new language can't have one: new languages need "
            "a multilingual model"
        )
    if directions.framing.target_end == TARGET:
        raise UserError(
            f"{folder} ends translations with the target language's tag, and a copy of this tag "
            "would take half of its probability: new languages need a model that ends with </s>"
        )
    entries = [
        [(token, row) for row, token in enumerate(words.symbols) if row >= words.nspecial]
        for words in vocabulary.dictionaries
    ]
    for language, copied in new_languages.items():
        tag = create_tag(language, copied, directions, folder)
        copied_tag = directions.tags[copied]
        for tokens in entries:
            rows = dict(tokens)
            if tag in rows:
                raise UserError(
                    f"the vocabulary of {folder} already has the token {tag}, which would be the "
                    f"tag of {language}: give another code"
                )
            if copied_tag in rows:  # some models have tags in the source's dictionary alone
                ends_in_mask = tokens[-1][0] == MASK
                tokens.insert(len(tokens) - ends_in_mask, (tag, rows[copied_tag]))
        directions = add_direction(directions, language, copied, tag)
    new = vocabulary.select(entries)
    new.description = replace(new.description, directions=directions)
    with atomic_folder(out) as new_folder:
        description = new.write(new_folder)
        copy_subword_models(new.description, new_folder)
        description.write()
        del vocabulary, new  # a large model needs the memory
        load_model(read_model_json(new_folder))  # checks the files


def create_tag(language: str, copied: str, directions: Directions, folder: Path) -> str:
    """The tag of a new language, in the format of the copied language's tag.

    Raises:
        UserError: see `add_languages`
    """
    if not LANGUAGE.fullmatch(language) or parse_language(language) is None:
        raise UserError(
            f"a new language must be a language's code such as tyv_Cyrl, but is "
            f"{one_line(language)!r}: give its code by ISO 639, with its script if the model's "
            "codes have one"
        )
    known = {name for pair in directions.pairs for name in pair} | {*directions.tags}
    if language in known:
        raise UserError(f"{folder} already has the language {language}: leave it out")
    if copied not in directions.tags:
        raise UserError(
            f"a new language must start as a language whose tag {folder} has, "
            f"{summarize_names(directions.tags)}, but {language} starts as {one_line(copied)}: "
            "give one of these"
        )
    tag = directions.tags[copied]
    return tag.replace(copied, language) if copied in tag else f"__{language}__"


def add_direction(directions: Directions, language: str, copied: str, tag: str) -> Directions:
    """The directions, and the directions of ``copied`` also for ``language``."""
    pairs = [*directions.pairs]
    for source, target in directions.pairs:
        if source == copied:
            pairs.append((language, target))
        if target == copied:
            pairs.append((source, language))
    return replace(directions, tags={**directions.tags, language: tag}, pairs=tuple(pairs))


def copy_subword_models(description: ModelDescription, folder: Path) -> None:
    """Copy the subword models to the same places in a new folder."""
    for model in (description.subword_model, description.target_subword_model):
        if model is None:
            continue
        files = [model]
        if description.subwords == "gpt2":
            files.append(model.with_name(GPT2_NUMBERS))
        for file in files:
            copy = folder / file.relative_to(description.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
