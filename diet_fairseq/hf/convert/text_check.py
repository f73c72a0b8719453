"""Comparison of text in `import hf`: the folder's own tokenizer and model against the imported one.

`load_tokenizer` builds the folder's tokenizer with transformers. `TranslationCheck` and
`EncoderCheck` compare the vocabularies, the ids of sentences, the tags of all languages, and some
translations or filled masks. docs/hugging-face.md lists the known differences.
"""

import re
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from fairseq.data import Dictionary
from fairseq.data.encoders.hf_bert_bpe import BertBPE, BertBPEConfig
from fairseq.dataclass.configs import CommonConfig, GenerationConfig
from fairseq.tasks.translation import TranslationTask
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...checkpoints.plain import describe_error, shorten
from ...errors import UserError, one_line
from ...files import read_json
from ...text.subwords import SPECIAL_SYMBOL, SentencePiece
from ...text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer
from ...text.whitespace import normalise
from ...translate.directions import EOS, Framing
from ...translate.engine import Search
from ...translate.fairseq_engine import FairseqEngine
from ...translate.loading import LoadedModel
from ...translate.model_json import ModelDescription
from .family import Family, Texts
from .vocabulary import ADVICE, Vocabulary

#: keys of ``tokenizer_config.json`` by which transformers would open other files
FILE_KEYS = (
    "fast_tokenizer_files", "gguf_file", "init_inputs", "merges", "tokenizer_object", "vocab"
)  # fmt: skip
#: sentences in several scripts, and odd white space, case, digits and symbols
SENTENCES = (
    "",
    "The quick brown fox jumps over the lazy dog.",
    "the fox",
    "a dog sleeps and a fox runs over the hill",
    "ein hund schläft und ein fuchs läuft über den hügel",
    "THE FOX SLEEPS",
    "Mr. O'Neill's e-mail (2024) isn't here; call +49 30 1234-567!",
    "3.14 is not 3,14 and 10,000 is not 10.000",
    "0123456789 007 1/2 50% $5 7kg",
    " leading space",
    "trailing space ",
    "two  spaces   and    more",
    "a\ttab",
    "no-break\u00a0space",
    "wide\u3000space",
    "line\u2028separator",
    "zero\u200bwidth",
    "\ufeffbyte order mark",
    "soft\u00adhyphen",
    "“Quotes”, «guillemets» and ‘others’ – with dashes — and …",
    "ﬁne ligatures, ½ and ², Ⅷ and ①",
    "cafe\u0301 and café",
    "Straße, Größe, naïve façade, smørrebrød, Łódź, ğış",
    "😀 smile 👩\u200d👩\u200d👧 family 🇩🇪",
    "x = y_1 + z^2; if (a < b && c > d) { e[f] = '#'; }",
    "https://example.org/path?q=1&r=2 user@example.org",
    "Быстрая коричневая лиса прыгает.",
    "Це речення українською мовою.",
    "Η γρήγορη καφέ αλεπού πηδάει.",
    "الثعلب البني السريع يقفز.",
    "השועל החום המהיר קופץ.",
    "तेज़ भूरी लोमड़ी कूदती है।",
    "দ্রুত বাদামী শিয়াল লাফায়।",
    "வேகமான பழுப்பு நரி தாவுகிறது.",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดด",
    "敏捷的棕色狐狸跳过了懒狗。",
    "素早い茶色の狐が飛び越える。",
    "빠른 갈색 여우가 뛰어오른다.",
    "სწრაფი ყავისფერი მელა ხტება.",
    "ፈጣኑ ቡናማ ቀበሮ ይዘላል።",
    "Arağaç şagwoyr çğplk qqq zxcvb",
    "supercalifragilisticexpialidocious",
    "!!! ??? ... --- *** ###",
)
#: sentences that are translated, and whose masked word is filled in
TRANSLATED = (1, 2, 4)
#: largest number of tokens in the compared translations
TRANSLATION_TOKENS = 20
#: largest number of tokens that an error shows
SHOWN = 16


def check_tokenizer_class(
    family: Family, families: dict[str, Any], texts: Texts, path: Path
) -> None:
    """Refuse a tokenizer whose class the family does not know, because it may read other tokens.

    Args:
        families: model type -> the description of the class
        path: the folder

    Raises:
        UserError: the class is unknown, or belongs to another model type
    """
    name = family.tokenizer_class(texts)
    if name in family.tokenizer_classes:
        return
    others = [kind for kind, other in families.items() if name in other.tokenizer_classes]
    advice = f"it belongs to the model type {' or '.join(others)}" if others else ADVICE
    raise UserError(
        f"{path}'s tokenizer is of the class {one_line(shorten(name))}, which may split text or "
        f"place tags in another way than {', '.join(family.tokenizer_classes)}, the classes that "
        f"`import hf` supports for this model type: {advice}"
    )


def check_tokenizer_options(path: Path) -> None:
    """Refuse a ``tokenizer_config.json`` that names code or other files; no code is run.

    Raises:
        UserError: the file is not a JSON object, or names code or files
    """
    if not path.exists():
        return
    values = read_json(path, advice=ADVICE)
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a JSON object: {ADVICE}")
    if values.get("auto_map"):
        raise UserError(
            f"{path} has auto_map: the folder's tokenizer needs code of the folder, which is never "
            "run; give a folder whose tokenizer is a class of transformers"
        )
    if name := next((key for key in FILE_KEYS if values.get(key)), None):
        raise UserError(
            f"{path} has {name}, which names other files or contents than the folder's files: "
            f"remove it, or {ADVICE}"
        )
    if values.get("sp_model_kwargs"):
        raise UserError(
            f"{path} has sp_model_kwargs, but fairseq's model reads SentencePiece's default "
            f"subwords: remove the key, or {ADVICE}"
        )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """A context without transformers' warnings."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)


def load_tokenizer(folder: Path, copies: Path, config: Any) -> tuple[Any, str]:
    """The folder's own tokenizer, and an empty text; or None, and a line that says why.

    Args:
        folder: the folder, for the line
        copies: a folder with checked copies of its files, the only files that are opened
        config: the model's configuration
    """
    try:
        with quiet_transformers():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                copies, config=config, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        names = ("tokenizer.json", Family.pieces, "source.spm", "vocab.json", "vocab.txt")
        file = next((name for name in names if (copies / name).exists()), "tokenizer.json")
        text = describe_error(error).replace(str(copies), str(folder))
        return None, (
            f"not compared as text: transformers can't build the tokenizer from {folder / file} "
            f"({text}), so check some translations or filled masks yourself"
        )
    return tokenizer, ""


def lowers_text(tokenizer: Any, texts: Texts) -> bool:
    """Whether BERT's tokenizer lower-cases text.

    Args:
        tokenizer: the folder's tokenizer, or None, if it can't be built
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    default = texts.do_lower_case is not False
    return bool(getattr(getattr(backend, "normalizer", None), "lowercase", default))


@dataclass
class TextCheck:
    """Comparison of ids: as the folder's tokenizer reads text, and as the imported model does.

    Attributes:
        folder: the folder, for errors
        tokenizer: the folder's tokenizer
        size: the number of ids in the model's vocabulary
        normalised: a sentence that both sides read alike only after our normalisation
    """

    folder: Path
    tokenizer: Any
    size: int
    normalised: str = field(default="", init=False)

    def refuse(self, sentence: str, theirs: Sequence[int], ours: Sequence[int], role: str) -> None:
        """Raise the error for a sentence that is read, or translated, as different ids."""
        pairs = enumerate(zip(theirs, ours, strict=False))
        first = next((n for n, (a, b) in pairs if a != b), min(len(theirs), len(ours)))
        first = max(0, first - SHOWN // 2)
        raise UserError(
            f"{self.folder} can't be imported: transformers gives {one_line(sentence)!r} the "
            f"{role} {self.show(theirs, first)}, but the imported model "
            f"{self.show(ours, first)}; nothing was written"
        )

    def show(self, ids: Sequence[int], first: int) -> str:
        """Some of the folder's tokens with these ids, from the index ``first`` on."""
        shown = list(ids[first : first + SHOWN])
        try:
            tokens = self.tokenizer.convert_ids_to_tokens(shown)
        except IndexError:  # of Marian's tokenizer, for an id that it lacks
            tokens = shown
        words = ["..."] * (first > 0) + [str(token) for token in tokens]
        return one_line(" ".join(words + ["..."] * (len(ids) > first + SHOWN)))

    def compare_vocabulary(self, tokens: Mapping[str, int], vocabulary: Vocabulary) -> None:
        """Refuse a vocabulary in which a token of the folder's tokenizer has another id, or none.

        The sentences check <unk>, which a tokenizer's table may have twice.

        Args:
            tokens: the symbols of fairseq's dictionary, as the tokenizer knows them, with ids
        """
        symbols = dict(zip(vocabulary.ids, vocabulary.symbols, strict=True))
        for token, number in sorted(tokens.items(), key=itemgetter(1)):
            is_storable = token.split() == [token] and token != UNKNOWN
            if number < self.size and is_storable and symbols.get(number) != token:
                raise UserError(
                    f"{self.folder} can't be imported: its tokenizer gives the id {number} to "
                    f"{one_line(token)!r}, but the imported dictionary to "
                    f"{one_line(symbols.get(number, 'nothing'))!r}; nothing was written"
                )

    def compare_sentence(
        self,
        sentence: str,
        ours: Sequence[int],
        read: Callable[[str], list[int]],
        normalise_line: Callable[[str], str],
        role: str,
    ) -> None:
        """Refuse a sentence that both sides read as different ids.

        transformers' classes may skip the normalisation of white space and characters. Then both
        sides must read the normalised sentence alike.
        """
        theirs = read(sentence)
        if theirs == ours:
            return
        if read(normalise_line(sentence)) != ours:
            self.refuse(sentence, theirs, ours, role)
        self.normalised = self.normalised or sentence

    def compare_added_words(
        self, read: Callable[[str], list[int]], encode: Callable[[str], list[int]]
    ) -> None:
        """Refuse added tokens that are words of a text, and that our subword models don't produce.

        Args:
            read: the ids of a sentence by the folder's tokenizer
            encode: the ids of a sentence in the imported model
        """
        words = added_words(self.tokenizer, self.size)
        sentences = {word: f"the {word} fox" for word in words}
        if lost := [word for word in words if read(sentences[word]) != encode(sentences[word])]:
            some = ", ".join(one_line(repr(word)) for word in lost[:SHOWN])
            more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
            raise UserError(
                f"{self.folder} can't be imported: its tokenizer has the added words {some}{more}, "
                "which the imported subword model would split; nothing was written"
            )

    def compare_special_tokens(self, encode: Callable[[str], list[int]]) -> None:
        """Refuse a text in which our tokenizer produces a special token."""
        special = special_tokens(self.tokenizer)
        ids = {self.tokenizer.convert_tokens_to_ids(token) for token in special}
        ids.discard(self.tokenizer.unk_token_id)
        for token in sorted(special):
            sentence = f"the {token} fox"
            if not ids.isdisjoint(ours := encode(sentence)):
                self.refuse(sentence, self.tokenizer(sentence)["input_ids"], ours, "tokens")

    def lines(self, counts: str) -> list[str]:
        """Lines about the comparison, to print."""
        lines = [f"compared with transformers as text: {counts}"]
        if self.normalised:
            lines.append(
                "known difference: the imported model normalises white space and characters, "
                f"unlike {type(self.tokenizer).__name__}, for example in "
                f"{one_line(ascii(self.normalised))}"
            )
        return lines


def convert_to_ids(tokens: Iterable[str], dictionary: Dictionary, ids: Sequence[int]) -> list[int]:
    """Ids in transformers of our tokens, through the indices of fairseq's dictionary."""
    return [ids[dictionary.index(token)] for token in tokens]


def normaliser(ours: Tokenizer) -> Callable[[str], str]:
    """Our normalisation of a sentence: white space, and the SentencePiece model's characters."""

    def normalise_line(sentence: str) -> str:
        sentence = ours.normalise(sentence)
        if isinstance(ours.subwords, SentencePiece):
            sentence = ours.subwords.model.normalize(sentence).replace("▁", " ").strip(" ")
        return sentence

    return normalise_line


def special_tokens(tokenizer: Any) -> set[str]:
    """The special tokens of a tokenizer, and the tags of its languages."""
    tags = getattr(tokenizer, "lang_token_to_id", {})  # of M2M-100
    return {*map(str, tokenizer.all_special_tokens), *tags, *SPECIAL_SYMBOLS}


def added_words(tokenizer: Any, size: int) -> list[str]:
    """The added tokens of a tokenizer that are not special: they stand for words of a text."""
    special = special_tokens(tokenizer)
    return [
        str(token)
        for number, token in sorted(tokenizer.added_tokens_decoder.items())
        if number < size and not token.special and str(token) not in special
    ]


def start_engine(
    description: ModelDescription, model: Any, args: Namespace, dictionaries: Sequence[Dictionary]
) -> FairseqEngine:
    """fairseq's search with a model in memory, which is changed for inference."""
    task = TranslationTask(args, dictionaries[0], dictionaries[-1])
    configuration = SimpleNamespace(common=CommonConfig(), generation=GenerationConfig())
    loaded = LoadedModel(description, model, configuration, task)
    return FairseqEngine([loaded], torch.device("cpu"), threads=None)


class TranslationCheck(TextCheck):
    """Comparison of a translation model.

    Args:
        family: the description of the class
        description: the imported model
        engine: fairseq's search with the imported model
        vocabularies: the dictionaries' symbols with their ids in transformers
        reference: the folder's model in transformers
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Any,
        family: Any,
        description: ModelDescription,
        engine: FairseqEngine,
        vocabularies: Sequence[Vocabulary],
        reference: Any,
    ) -> None:
        super().__init__(folder, tokenizer, max(vocabularies[-1].ids) + 1)
        self.family, self.vocabularies, self.engine = family, vocabularies, engine
        self.reference = reference
        self.dictionaries = engine.source, engine.target
        self.directions, self.tokenizers = description.all_directions, description.tokenizers
        self.languages = description.source_lang, description.target_lang

    def run(self) -> list[str]:
        """Compare text in the default direction, and the tags of all languages.

        Returns:
            lines to print

        Raises:
            UserError: the folder's tokenizer or model differs from the imported model
        """
        source, target = self.languages
        symbols = self.family.symbols(self.folder)
        tables = [self.tokenizer.get_vocab()]
        if len(self.vocabularies) > 1:
            tables.append(self.tokenizer.target_encoder)
        for table, vocabulary in zip(tables, self.vocabularies, strict=True):
            tokens = {symbols.get(token, token): number for token, number in table.items()}
            self.compare_vocabulary(tokens, vocabulary)
        self.compare_languages()
        for sentence in SENTENCES:
            self.compare_source(sentence, source, target)
            self.compare_target(sentence, source, target)
        self.compare_special_tokens(self.encode_source)
        self.compare_added_words(
            partial(self.read_source, source=source, target=target),
            partial(self.encode_marked_source, source=source, target=target),
        )
        for first, second in self.cover_languages():
            self.compare_source(SENTENCES[2], first, second)
            self.compare_target(SENTENCES[2], first, second)
        self.compare_translations([SENTENCES[n] for n in TRANSLATED], source, target)
        count = len(self.directions.tags)
        tags = f", the tags of {count} languages" if count else ""
        lines = self.lines(f"{len(SENTENCES)} sentences{tags}, {len(TRANSLATED)} translations")
        symbols_without_tags = set(self.vocabularies[0].symbols) - self.directions.all_tags
        unnamed = sorted(s for s in symbols_without_tags if re.fullmatch(self.family.tag, s))
        if count and unnamed:
            lines.append(
                f"not imported, because a language must be a code: {one_line(' '.join(unnamed))}"
            )
        return lines

    def cover_languages(self) -> Iterable[tuple[str, str]]:
        """Pairs in which each language is a source, and a target, if the model allows it."""
        if not self.directions.pairs:
            names = list(self.directions.tags)
            return zip(names, names[1:] + names[:1], strict=True)
        by_source = {pair[0]: pair for pair in self.directions.pairs}
        by_target = {pair[1]: pair for pair in self.directions.pairs}
        return dict.fromkeys([*by_source.values(), *by_target.values()])

    def encode_source(self, sentence: str) -> list[int]:
        """The ids of a source sentence, without framing."""
        tokens = self.tokenizers[0].encode(sentence)
        return convert_to_ids(tokens, self.dictionaries[0], self.vocabularies[0].ids)

    def compare_languages(self) -> None:
        """Refuse a model that lacks a language of the folder's tokenizer."""
        tokens = self.tokenizer.get_added_vocab() | getattr(self.tokenizer, "lang_token_to_id", {})
        known = self.directions.all_tags
        for token, number in tokens.items():
            is_tag = re.fullmatch(self.family.tag, token) and number < self.size
            if is_tag and token not in known:
                raise UserError(
                    f"{self.folder} can't be imported: its tokenizer has the language tag "
                    f"{one_line(token)!r}, which the imported model lacks; nothing was written"
                )

    def encode_marked_source(self, sentence: str, source: str, target: str) -> list[int]:
        """The ids of a source sentence with its framing."""
        framing = self.directions.frame(source, target)
        tokens = [*framing.source_prefix, *self.tokenizers[0].encode(sentence), *framing.source_end]
        return convert_to_ids(tokens, self.dictionaries[0], self.vocabularies[0].ids)

    def read_source(self, sentence: str, source: str, target: str) -> list[int]:
        """The ids of a source sentence by the folder's tokenizer."""
        if hasattr(self.tokenizer, "src_lang"):
            self.tokenizer.src_lang = source
        elif target in self.directions.tags:  # Marian's tags stand in the text
            sentence = f"{self.directions.tags[target]} {sentence}"
        return list(self.tokenizer(sentence)["input_ids"])

    def compare_source(self, sentence: str, source: str, target: str) -> None:
        """Compare a source sentence with its framing."""
        ids = self.encode_marked_source(sentence, source, target)
        read = partial(self.read_source, source=source, target=target)
        role = f"tokens ({source} to {target})"
        self.compare_sentence(sentence, ids, read, normaliser(self.tokenizers[0]), role)

    def compare_target(self, sentence: str, source: str, target: str) -> None:
        """Compare a target sentence with its framing, as the decoder reads it in training.

        NLLB's old tokenizer trains with the tag at the end, and `generate` forces it at the start.
        There the order of the tokens around the sentence is not compared.
        """
        framing, ids = self.directions.frame(source, target), self.vocabularies[-1].ids
        is_legacy = getattr(self.tokenizer, "legacy_behaviour", False)
        tokens = self.tokenizers[1].encode(sentence)
        words = [*framing.target_prefix, *tokens, framing.target_end]
        ours = [self.start(framing), *convert_to_ids(words, self.dictionaries[1], ids)]

        def read(text: str) -> list[int]:
            if hasattr(self.tokenizer, "tgt_lang"):
                self.tokenizer.tgt_lang = target
            labels = self.tokenizer(text_target=text, return_tensors="pt")["input_ids"]  # (1, T)
            if is_legacy:
                return sorted([self.start(framing), *labels[0].tolist()])
            inputs: list[int] = self.shift_labels(labels)[0].tolist()
            if inputs[-1] != self.tokenizer.eos_token_id:  # else mBART-25's tag has moved to 0
                inputs.append(int(labels[0, -1]))
            return inputs

        ours = sorted(ours) if is_legacy else ours
        role = f"target tokens ({source} to {target})"
        self.compare_sentence(sentence, ours, read, normaliser(self.tokenizers[1]), role)

    def shift_labels(self, labels: Tensor) -> Tensor:
        """(1, T) inputs of the decoder, as the folder's class makes them of (1, T) labels."""
        shift = sys.modules[type(self.reference).__module__].shift_tokens_right
        config = self.reference.config
        starts = () if config.model_type == "mbart" else (config.decoder_start_token_id,)
        inputs: Tensor = shift(labels, config.pad_token_id, *starts)
        return inputs

    def start(self, framing: Framing) -> int:
        """The id of the decoder's first input.

        fairseq's model of Marian starts with </s>, and adds the difference to the folder's token.
        """
        number = self.reference.config.decoder_start_token_id
        if framing.target_start == EOS and number is not None:
            return int(number)
        [number] = convert_to_ids(
            [framing.target_start], self.dictionaries[1], self.vocabularies[-1].ids
        )
        return number

    @torch.no_grad()
    def compare_translations(self, sentences: Sequence[str], source: str, target: str) -> None:
        """Compare the greedy translations of sentences by both models, as ids and as text."""
        framing, ids = self.directions.frame(source, target), self.vocabularies[-1].ids
        longest, longest_target = self.engine.max_source_length, self.engine.max_target_length
        assert longest is not None  # fairseq's engine has both limits
        assert longest_target is not None
        room = max(1, longest - framing.source_length)
        sources = [self.tokenizers[0].encode(sentence)[:room] for sentence in sentences]
        limit = min(TRANSLATION_TOKENS, longest_target - framing.target_length)
        hypotheses = self.engine.search(sources, max(1, limit), Search(beam=1, framing=framing))
        inputs = [
            convert_to_ids(
                [*framing.source_prefix, *tokens, *framing.source_end],
                self.dictionaries[0],
                self.vocabularies[0].ids,
            )
            for tokens in sources
        ]
        theirs = self.generate(inputs, framing, max(1, limit))
        tags = set(convert_to_ids(self.directions.all_tags, self.dictionaries[1], ids))
        unused = {
            symbol for symbol in self.vocabularies[-1].symbols if SPECIAL_SYMBOL.fullmatch(symbol)
        }
        for sentence, [hypothesis], expected in zip(sentences, hypotheses, theirs, strict=True):
            actual = convert_to_ids(hypothesis.tokens, self.dictionaries[1], ids)
            if actual != expected:
                role = f"translation ({source} to {target})"
                self.refuse(sentence, expected, actual, role)
            if any(token in unused for token in hypothesis.tokens):
                continue  # they have different texts, which no trained model writes
            with quiet_transformers():
                text = self.tokenizer.decode(
                    [number for number in expected if number not in tags],
                    skip_special_tokens=True,
                    clean_up_tokenization_spaces=False,
                )
            translation = self.tokenizers[1].decode(hypothesis.tokens)
            if normalise(text).split() != normalise(translation).split():
                raise UserError(
                    f"{self.folder} can't be imported: the translation of {one_line(sentence)!r} "
                    f"is {one_line(text)!r} in transformers, but {one_line(translation)!r} in the "
                    "imported model; nothing was written"
                )

    def generate(
        self, inputs: Sequence[list[int]], framing: Framing, limit: int
    ) -> list[list[int]]:
        """The ids of transformers' greedy translations, without special tokens.

        Only the folder's start token, and the options that fairseq's search has, are used.
        """
        dictionary, ids = self.dictionaries[1], self.vocabularies[-1].ids
        end, pad, *forced = convert_to_ids(
            (framing.target_end, "<pad>", *framing.target_prefix), dictionary, ids
        )
        start = self.start(framing)
        options = transformers.GenerationConfig(
            max_new_tokens=limit + framing.target_length,
            min_new_tokens=1,
            decoder_start_token_id=start,
            forced_bos_token_id=forced[0] if forced else None,
            eos_token_id=end,
            pad_token_id=pad,
            suppress_tokens=[pad],
        )
        self.reference.generation_config = options  # or its other defaults would be used
        rows = [torch.tensor(row) for row in inputs]
        batch = pad_sequence(rows, batch_first=True, padding_value=pad)  # (B, T)
        masks = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        with quiet_transformers():
            output = self.reference.generate(
                input_ids=batch, attention_mask=masks, generation_config=options
            )
        special = {*convert_to_ids(framing.target_tokens, dictionary, ids), start, pad}
        return [[n for n in row if n not in special] for row in output[:, 1:].tolist()]


class EncoderCheck(TextCheck):
    """Comparison of an encoder.

    Args:
        family: the description of the class
        out: the folder with the imported files
        text: the kind and the file of the subword model
        lower: whether BERT's tokenizer lower-cases text
        vocabulary: the dictionary's symbols with their ids in transformers
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Any,
        family: Any,
        out: Path,
        text: Mapping[str, Any],
        lower: bool,
        vocabulary: Vocabulary,
    ) -> None:
        super().__init__(folder, tokenizer, max(vocabulary.ids) + 1)
        self.family, self.vocabulary = family, vocabulary
        ours = Tokenizer(text["subwords"], text["subword_model"], "en")
        self.encode, self.normalise = ours.encode, normaliser(ours)
        #: fairseq's own tokenizer of BERT, and a sentence that it splits in another way
        self.bert_bpe: BertBPE | None = None
        self.bert_difference = ""
        if text["subwords"] == "wordpiece":
            config = BertBPEConfig(bpe_cased=not lower, bpe_vocab_file=str(out / "vocab.txt"))
            self.bert_bpe = BertBPE(config)

    def run(self, model: Any, reference: Any) -> list[str]:
        """Compare the vocabulary, sentences, and masked words.

        Args:
            model: fairseq's model
            reference: the folder's model in transformers

        Returns:
            lines to print

        Raises:
            UserError: the folder's tokenizer or model differs from the imported model
        """
        dictionary, ids = model.encoder.dictionary, self.vocabulary.ids
        symbols = self.family.symbols(self.folder)
        table = self.tokenizer.get_vocab()
        self.compare_vocabulary({symbols.get(t, t): n for t, n in table.items()}, self.vocabulary)
        start, end = convert_to_ids(("<s>", EOS), dictionary, ids)

        def encode(sentence: str) -> list[int]:
            return [start, *convert_to_ids(self.encode(sentence), dictionary, ids), end]

        for text in SENTENCES:
            self.compare_sentence(text, encode(text), self.read, self.normalise, "tokens")
        if self.bert_bpe is None:
            self.compare_added_words(self.read, encode)
        else:
            words = [f"the {word} fox" for word in added_words(self.tokenizer, self.size)]
            for text in (*SENTENCES, *words):
                symbols = self.bert_bpe.encode(text).split()
                if self.read(text)[1:-1] != convert_to_ids(symbols, dictionary, ids):
                    self.bert_difference = text
                    break
        self.compare_special_tokens(lambda text: encode(text)[1:-1])
        fills_masks = self.tokenizer.mask_token and model.encoder.lm_head is not None
        masked = TRANSLATED if fills_masks else ()
        for index in masked:
            self.compare_masked_word(SENTENCES[index], model, reference)
        lines = self.lines(f"{len(SENTENCES)} sentences, {len(masked)} masked words")
        if self.bert_difference:
            lines.append(
                "known difference: fairseq's --bpe bert has no options but the case, and splits "
                f"{one_line(ascii(self.bert_difference))} in another way than the folder's "
                "tokenizer: prepare text with the folder's tokenizer"
            )
        return lines

    def read(self, sentence: str) -> list[int]:
        """The ids of a sentence in transformers."""
        return list(self.tokenizer(sentence)["input_ids"])

    @torch.no_grad()
    def compare_masked_word(self, sentence: str, model: Any, reference: Any) -> None:
        """Compare the words with which both models fill in a mask at the second word."""
        ids = self.vocabulary.ids
        words = sentence.split()
        words[1] = self.tokenizer.mask_token
        theirs = torch.tensor([self.read(" ".join(words))[: model.max_positions()]])  # (1, T)
        indices = {number: index for index, number in enumerate(ids)}
        ours = torch.tensor([[indices[number] for number in theirs[0].tolist()]])
        is_mask = theirs == self.tokenizer.mask_token_id
        expected = reference(input_ids=theirs)[0][is_mask].argmax(-1).tolist()
        actual = model(ours)[0][is_mask].argmax(-1).tolist()
        if (predicted := [ids[index] for index in actual]) != expected:
            self.refuse(" ".join(words), expected, predicted, "masked word")
