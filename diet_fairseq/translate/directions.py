"""Directions of translation, and the language tags that select them.

A bilingual model has one direction and no tags. A multilingual model reads language tags; its
fairseq task or ``model.json`` defines their places.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UserError, one_line
from ..text.languages import match_language

#: pattern of a language's code, which is part of the file names of dictionaries
LANGUAGE = re.compile(r"[A-Za-z0-9][\w-]{0,31}", re.ASCII)
EOS = "</s>"
#: tokens of `Framing` that `Directions.frame` replaces by the tags of the two languages
SOURCE, TARGET = "{source}", "{target}"
#: value of fairseq's --lang-tok-style -> format of a language's tag
TAG_STYLES = {"multilingual": "__{}__", "mbart": "[{}]"}
#: data type in fairseq's --langtoks-specs -> suffix of a language's tag
TAG_ENDINGS = {"dae": "_dae", "mined": "_mined"}
#: largest number of names in the result of `summarize_names`
NAMED = 20


@dataclass(frozen=True)
class Framing:
    """The tokens around a source sentence and around its translation.

    Attributes:
        source_prefix: tokens before the source
        source_end: tokens after the source
        target_start: the decoder's first input
        target_prefix: forced first tokens of the translation
        target_end: the token that ends the translation
    """

    source_prefix: tuple[str, ...] = ()
    source_end: tuple[str, ...] = (EOS,)
    target_start: str = EOS
    target_prefix: tuple[str, ...] = ()
    target_end: str = EOS

    @property
    def has_own_ends(self) -> bool:
        """Whether the source ends, or the translation starts, with another token than </s>."""
        return self.source_end != (EOS,) or self.target_start != EOS

    @property
    def source_length(self) -> int:
        """The number of tokens in the encoder's input, without the subwords and </s>."""
        return len(self.source_prefix) + len(self.source_end) - 1

    @property
    def target_length(self) -> int:
        """The number of tokens in the decoder's output, without the subwords and </s>."""
        return len(self.target_prefix) + (self.target_end != EOS)

    @property
    def source_tokens(self) -> set[str]:
        """The tokens around the source."""
        return {*self.source_prefix, *self.source_end}

    @property
    def target_tokens(self) -> set[str]:
        """The tokens around the translation."""
        return {self.target_start, *self.target_prefix, self.target_end}

    def fill(self, tags: Mapping[str, str]) -> "Framing":
        """The framing with `SOURCE` and `TARGET` replaced by ``tags``."""

        def fill_all(tokens: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(tags.get(token, token) for token in tokens)

        return Framing(
            fill_all(self.source_prefix),
            fill_all(self.source_end),
            tags.get(self.target_start, self.target_start),
            fill_all(self.target_prefix),
            tags.get(self.target_end, self.target_end),
        )


#: the framing of bilingual models
PLAIN = Framing()
#: names of the fields of `Framing`
FRAMING_FIELDS = tuple(vars(PLAIN))


@dataclass(frozen=True)
class Directions:
    """The translation directions of a model.

    Attributes:
        tags: language -> tag; a language without a tag in any direction may be missing
        pairs: source and target languages; empty: all pairs of languages in ``tags``
        framing: the framing of every direction; `SOURCE` and `TARGET` stand for the tags
    """

    tags: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...] = ()
    framing: Framing = PLAIN

    @property
    def targets(self) -> dict[str, list[str]]:
        """Source language -> target languages."""
        if not self.pairs:
            return {source: [name for name in self.tags if name != source] for source in self.tags}
        targets: dict[str, list[str]] = {}
        for source, target in self.pairs:
            targets.setdefault(source, []).append(target)
        return targets

    @property
    def all_tags(self) -> set[str]:
        """The tags of all languages, which a text must not contain."""
        return set(self.tags.values())

    def match(self, source: str, target: str) -> tuple[str, str]:
        """The languages that two codes stand for, in the model's spelling (`match_language`).

        A code that stands for no language or for several languages is unchanged.
        """
        targets = self.targets
        matches = match_language(source, targets)
        source = matches[0] if len(matches) == 1 else source
        matches = match_language(target, targets.get(source, []))
        return source, matches[0] if len(matches) == 1 else target

    def check(
        self, source: str, target: str, names: tuple[str, str] = ("source_lang", "target_lang")
    ) -> None:
        """Refuse languages between which the model does not translate.

        Args:
            names: names of the two languages, for the error

        Raises:
            UserError: the model does not translate from ``source`` to ``target``
        """
        targets = self.targets
        if source not in targets:
            raise UserError(
                f"{names[0]} must be one of the model's languages, {summarize_names(targets)}, but "
                f"is {one_line(source)}"
            )
        if target not in targets[source]:
            raise UserError(
                f"{names[1]} must be a language that the model translates {source} to, "
                f"{summarize_names(targets[source])}, but is {one_line(target)}"
            )

    def frame(self, source: str, target: str) -> Framing:
        """The framing of a direction, with its tags."""
        tags = {SOURCE: self.tags.get(source, ""), TARGET: self.tags.get(target, "")}
        return self.framing.fill(tags)

    def check_vocabularies(
        self, source: Collection[str], target: Collection[str], names: str
    ) -> None:
        """Refuse vocabularies without the framing of every direction.

        Args:
            names: names of the vocabularies, for the error

        Raises:
            UserError: a token is missing
        """
        # if all pairs are allowed, one pair with each source and each target suffices
        targets = self.targets
        pairs = self.pairs or [(name, next(iter(targets[name]), name)) for name in self.tags]
        pairs = [*pairs, *((pair[1], pair[0]) for pair in pairs if not self.pairs)]
        for pair in pairs:
            framing = self.frame(*pair)
            for tokens, words in ((framing.source_tokens, source), (framing.target_tokens, target)):
                if missing := sorted(tokens.difference(words)):
                    raise UserError(
                        f"{names} must have the tag of every language, but {missing[0]!r}, which "
                        f"{pair[0]} to {pair[1]} needs, is missing: give the dictionary that the "
                        "model was trained with"
                    )


def summarize_names(languages: Iterable[str]) -> str:
    """The first `NAMED` languages, and the number of the others, as text."""
    names = list(languages)
    others = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + others


# --- fairseq's tasks


def read_task(task: Mapping[str, Any]) -> tuple[Directions, list[str]] | None:
    """The directions of a fairseq task, and the tokens that it adds to its dictionaries.

    The tokens are in fairseq's order. The result is None for tasks without tags.

    Args:
        task: the task's options in a checkpoint, which are untrusted

    Raises:
        UserError: the task frames sentences in a way that is not supported
    """
    readers = {
        "translation_multi_simple_epoch": _read_simple_epoch,
        "multilingual_translation": _read_multilingual,
        "translation_from_pretrained_bart": _read_pretrained_bart,
    }
    reader = readers.get(str(task.get("_name") or task.get("task")))
    return reader(task) if reader else None


def _read_simple_epoch(task: Mapping[str, Any]) -> tuple[Directions, list[str]]:
    if _is_set(task, "add_data_source_prefix_tags"):
        raise _unsupported_option("--add-data-source-prefix-tags")
    pairs = _read_pairs(task)
    languages = _read_languages(task.get("langs"))
    # the tags of the languages in the file lang_dict, which is not read, are in the dictionary
    in_dictionary = not languages and bool(task.get("lang_dict"))
    languages = languages or sorted({language for pair in pairs for language in pair})
    style = TAG_STYLES.get(str(task.get("lang_tok_style") or "multilingual"))
    if style is None:
        raise _unsupported_option(f"--lang-tok-style {task['lang_tok_style']}")
    tags = {language: style.format(language) for language in languages}
    encoder = task.get("encoder_langtok")
    decoder = "tgt" if _is_set(task, "decoder_langtok") else None
    langtoks = task.get("langtoks")
    main = langtoks.get("main") if isinstance(langtoks, Mapping) else None
    if isinstance(main, list | tuple) and len(main) == 2:
        encoder, decoder = main
    if encoder not in (None, "src", "tgt") or decoder not in (None, "tgt"):
        raise _unsupported_option(f"--langtoks {(encoder, decoder)}")
    before = {None: (), "src": (SOURCE,), "tgt": (TARGET,)}[encoder]
    if _is_set(task, "lang_tok_replacing_bos_eos"):
        framing = Framing(source_end=before or (EOS,), target_start=TARGET if decoder else EOS)
    else:
        framing = Framing(source_prefix=before, target_prefix=(TARGET,) if decoder else ())
    if in_dictionary:
        return Directions(tags, framing=framing), []
    added = []
    for kind in _split_words(task.get("langtoks_specs") or "main"):
        ending = next((TAG_ENDINGS[end] for end in TAG_ENDINGS if kind.endswith(end)), "")
        added += [style.format(f"{language}{ending}") for language in languages]
    extra_data = task.get("extra_data")
    if style == TAG_STYLES["mbart"] or (extra_data and "mono_dae" in extra_data):
        added.append("<mask>")
    return Directions(tags, framing=framing), added


def _read_multilingual(task: Mapping[str, Any]) -> tuple[Directions, list[str]]:
    pairs, encoder = _read_pairs(task), task.get("encoder_langtok")
    tags = {name: f"__{name}__" for name in sorted({name for pair in pairs for name in pair})}
    framing = Framing(
        source_end=({"src": SOURCE, "tgt": TARGET}.get(str(encoder), EOS),),
        target_start=TARGET if _is_set(task, "decoder_langtok") else EOS,
    )
    return Directions(tags, tuple(pairs), framing), list(tags.values()) if framing != PLAIN else []


def _read_pretrained_bart(task: Mapping[str, Any]) -> tuple[Directions, list[str]]:
    tags = {name: f"[{name}]" for name in _read_languages(task.get("langs"))}
    pair = _read_languages([task.get("source_lang"), task.get("target_lang")])
    framing = Framing(
        source_prefix=("<s>",) if _is_set(task, "prepend_bos") else (),
        source_end=(EOS, SOURCE),
        target_start=TARGET,
        target_end=TARGET,
    )
    pairs = ((pair[0], pair[1]),) if len(pair) == 2 else ()
    return Directions(tags, pairs, framing), [*tags.values(), "<mask>"]


def _read_pairs(task: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for pair in _split_words(task.get("lang_pairs")):
        source, _, target = pair.partition("-")
        pairs.append((_check_language(source), _check_language(target)))
    return pairs


def _read_languages(value: Any) -> list[str]:
    return [_check_language(language) for language in _split_words(value)]


def _check_language(language: str) -> str:
    if not LANGUAGE.fullmatch(language):
        raise UserError(
            f"the checkpoint names the language {one_line(language[:40])!r}, but a language must "
            "be a code such as en: use another checkpoint"
        )
    return language


def _split_words(value: Any) -> list[str]:
    """The words of a comma-separated text, which fairseq may already have split into a list."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple):
        return []
    return [word.strip() for word in words if isinstance(word, str) and word.strip()]


def _is_set(task: Mapping[str, Any], name: str) -> bool:
    """Whether a flag is set; old checkpoints store its value as text."""
    return str(task.get(name)).lower() in ("true", "1")


def _unsupported_option(option: str) -> UserError:
    """The error for an option that puts language tags where `Framing` has no place."""
    return UserError(
        f"the checkpoint was trained with {one_line(option[:80])}, whose language tokens are "
        "not supported here: translate with fairseq-generate"
    )
