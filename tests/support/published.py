"""Tiny checkpoints in the layouts of published ones, made by fairseq alone.

Names, types and values of options are those of the sources that each function cites; sizes are
tiny, parameters random. The originals were not at hand.
"""

import json
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import base_architecture
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
from omegaconf import OmegaConf

from tests.support.commands import without_protection
from tests.support.texts import learn_subwords, sentences

#: options of a translation model, as --arch transformer_... of a published one has them
SIZES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {
        "layers": 1, "embed_dim": 16, "ffn_embed_dim": 16, "attention_heads": 2
    }.items()
}  # fmt: skip


class Model:
    """The files of a published model in ``folder``: checkpoint, dictionary and subword model.

    Attributes:
        pairs: two or more of its directions
        task: fairseq-generate's options for its task, without the languages
        sides: languages in the names of its files, if they are not those of the direction
    """

    pairs: tuple[tuple[str, str], ...] = ()
    task: tuple[str, ...] = ()
    sides: tuple[str, str] | None = None

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.checkpoint, self.subwords = folder / "model.pt", folder / "spm.model"
        learn_subwords(self.subwords, "sentencepiece", sentences(200), 90)
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(self.subwords))
        self.words = Dictionary()
        for number in range(3, self.pieces.get_piece_size()):  # the first three are its marks
            self.words.add_symbol(self.pieces.id_to_piece(number), 9)

    def save_dictionaries(self, *names: str) -> None:
        for name in names:
            self.words.save(str(self.folder / name))

    def dictionaries(self, pair: tuple[str, str]) -> dict[str, Path]:
        """The files of the dictionaries of source and target, by fairseq-preprocess's options."""
        paths = [self.folder / f"dict.{language}.txt" for language in pair]
        if not paths[0].exists():
            paths = [self.folder / "dict.txt"] * 2
        return dict(zip(("src", "tgt"), paths, strict=True))

    def mark(self, pieces: str, pair: tuple[str, str]) -> str:
        """The pieces with tags that stand in the text."""
        return f"{' '.join(pair)} {pieces}" if self.sides else pieces

    def save(self, state: dict[str, Any], args: Namespace | None, cfg: Any = None) -> None:
        history = [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {},
                    "num_updates": 7}]  # fmt: skip
        extra = {"epoch": 1, "train_iterator": {"epoch": 1}}
        torch.save(
            {"args": args, "cfg": cfg, "model": state, "optimizer_history": history,
             "extra_state": extra},
            self.checkpoint,
        )  # fmt: skip


def random_parameters(
    args: Namespace,
    words: Dictionary,
    target: Dictionary | None = None,
    towards_end: float = 9,
    seed: int = 7,
    end: str = "</s>",
) -> dict[str, Any]:
    """Parameters of fairseq's model with these options, which ends its translations.

    Larger numbers than those it starts with make it say different things to different sentences.
    """

    class Task:
        source_dictionary, target_dictionary = words, target or words

    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, Task)
    state = {name: 3 * value for name, value in model.state_dict().items()}
    last = "layer_norm" if args.decoder_normalize_before else "layers.0.final_layer_norm"
    state[f"decoder.{last}.bias"] += 1
    row = state["decoder.output_projection.weight"][(target or words).index(end)]
    row += towards_end / len(row)
    if getattr(args, "share_all_embeddings", False):
        for side in ("encoder", "decoder"):
            state[f"{side}.embed_tokens.weight"] = state["decoder.output_projection.weight"]
    return state


def complete(args: Namespace) -> Namespace:
    """The options with fairseq's defaults."""
    base_architecture(args)
    return args


def repair_stock_fairseq() -> None:
    """Let stock fairseq load its own checkpoints, and mBART's task find its options."""
    without_protection()
    TranslationFromPretrainedBARTTask.args = property(lambda task: task.cfg)


def sections(args: Namespace) -> dict[str, Any]:
    """The options as fairseq stores them since 2021, a Namespace for task and for model."""
    cfg: Any = OmegaConf.to_container(
        convert_namespace_to_omegaconf(args), resolve=True, enum_to_str=True
    )
    task, model = vars(args) | {"_name": args.task}, vars(args) | {"_name": args.arch}
    return {**cfg, "task": Namespace(**task), "model": Namespace(**model)}


def add_tags(words: Dictionary, tags: Iterable[str]) -> Dictionary:
    for tag in tags:
        words.add_symbol(tag)
    return words


def m2m100(folder: Path) -> Model:
    """M2M-100: examples/m2m_100/README.md (``--lang-pairs``, ``--fixed-dictionary``,
    ``--decoder-langtok --encoder-langtok src``) and the arguments of
    data/multilingual/multilingual_data_manager.py, of which `prepare` changes ``langtoks``; options
    as a Namespace, as fairseq stored them until the end of 2020.
    """
    model = Model(folder)
    model.save_dictionaries("dict.txt")
    args = complete(
        Namespace(
            arch="transformer_wmt_en_de_big", task="translation_multi_simple_epoch",
            criterion="label_smoothed_cross_entropy", data="/private/home/data-bin",
            source_lang=None, target_lang=None, lang_pairs="en-de,de-en,en-fr,fr-en",
            langs=None, lang_dict=None, lang_tok_style="multilingual", encoder_langtok="src",
            decoder_langtok=True, langtoks={"main": ("src", "tgt")}, langtoks_specs=["main"],
            lang_tok_replacing_bos_eos=False, extra_data=None, source_dict=None, target_dict=None,
            left_pad_source="True", left_pad_target="False", max_source_positions=1024,
            max_target_positions=1024, sampling_method="temperature", sampling_temperature=5,
            encoder_normalize_before=True, decoder_normalize_before=True,
            share_all_embeddings=True, share_decoder_input_output_embed=True, **SIZES,
        )
    )  # fmt: skip
    tags = ["__de__", "__en__", "__fr__"]
    model.save(random_parameters(args, add_tags(model.words, tags)), args)
    model.pairs = ("en", "de"), ("fr", "en")
    model.task = (
        "--task=translation_multi_simple_epoch", f"--lang-pairs={args.lang_pairs}",
        f"--fixed-dictionary={folder / 'dict.txt'}", "--decoder-langtok", "--encoder-langtok=src",
    )  # fmt: skip
    return model


def nllb(folder: Path) -> Model:
    """NLLB-200: examples/nllb/modeling of fairseq's branch nllb (README.md, and
    train/train_script.py: ``--langs``, ``--encoder-langtok src --decoder-langtok``,
    ``--share-all-embeddings``, norms before); options as fairseq stores them since 2021. The
    ``dictionary.txt`` of the download has the languages' tags.
    """
    model, languages = Model(folder), ["eng_Latn", "fra_Latn", "hin_Deva"]
    add_tags(model.words, [f"__{language}__" for language in languages])
    model.save_dictionaries("dict.txt")
    args = complete(
        Namespace(
            _name="transformer", arch="transformer", task="translation_multi_simple_epoch",
            data="/data/nllb", source_lang=None, target_lang=None,
            lang_pairs=["eng_Latn-fra_Latn", "hin_Deva-eng_Latn"], langs=languages, lang_dict=None,
            lang_tok_style="multilingual", encoder_langtok="src", decoder_langtok=True,
            langtoks={"main": ("src", "tgt")}, langtoks_specs=["main"],
            lang_tok_replacing_bos_eos=False, add_data_source_prefix_tags=False, extra_data=None,
            source_dict=None, target_dict=None, fixed_dictionary="/data/nllb/dictionary.txt",
            left_pad_source=True, left_pad_target=False, max_source_positions=512,
            max_target_positions=512, encoder_normalize_before=True,
            decoder_normalize_before=True, share_all_embeddings=True, **SIZES,
        )
    )  # fmt: skip
    model.save(random_parameters(args, model.words), None, sections(args))
    model.pairs = ("eng_Latn", "fra_Latn"), ("hin_Deva", "eng_Latn")
    model.task = (
        "--task=translation_multi_simple_epoch", f"--langs={','.join(languages)}",
        f"--lang-pairs={','.join(args.lang_pairs)}",
        f"--fixed-dictionary={folder / 'dict.txt'}", "--decoder-langtok", "--encoder-langtok=src",
    )  # fmt: skip
    return model


def mbart(folder: Path) -> Model:
    """mBART, fine-tuned: examples/mbart/README.md (``--arch mbart_large``, ``--langs``,
    ``--layernorm-embedding``, norms before); options as a Namespace, no output projection beside
    the shared embeddings, sentences that end in their language.
    """
    model, languages = Model(folder), ["ar_AR", "cs_CZ", "en_XX", "ro_RO"]
    model.save_dictionaries("dict.txt", "dict.en_XX.txt", "dict.ro_RO.txt")
    args = Namespace(
        arch="mbart_large", task="translation_from_pretrained_bart", data="/data/bin",
        source_lang="en_XX", target_lang="ro_RO", langs=",".join(languages), prepend_bos=False,
        criterion="label_smoothed_cross_entropy", left_pad_source="True", left_pad_target="False",
        max_source_positions=1024, max_target_positions=1024, encoder_normalize_before=True,
        decoder_normalize_before=True, layernorm_embedding=True, upsample_primary=1,
        truncate_source=False, load_alignments=False, **SIZES,
    )  # fmt: skip
    ARCH_CONFIG_REGISTRY[args.arch](args)
    add_tags(model.words, [*(f"[{language}]" for language in languages), "<mask>"])
    state = random_parameters(args, model.words, towards_end=-10, seed=1, end="[ro_RO]")
    del state["decoder.output_projection.weight"]
    model.save(state, args)
    model.pairs = (("en_XX", "ro_RO"),)
    model.task = "--task=translation_from_pretrained_bart", f"--langs={args.langs}"
    return model


def multilingual(folder: Path) -> Model:
    """A model of examples/translation/README.md's multilingual section: one encoder and one decoder
    for all pairs, whose parameters the checkpoint has once for each pair.
    """
    model, pairs = Model(folder), ["de-en", "en-fr"]
    model.save_dictionaries("dict.de.txt", "dict.en.txt", "dict.fr.txt")
    args = complete(
        Namespace(
            arch="multilingual_transformer", task="multilingual_translation", data="/data/bin",
            source_lang=None, target_lang=None, lang_pairs=pairs, encoder_langtok="tgt",
            decoder_langtok=True, share_encoders=True, share_decoders=True,
            share_encoder_embeddings=True, share_decoder_embeddings=True,
            share_decoder_input_output_embed=True, left_pad_source=True, left_pad_target=False,
            max_source_positions=1024, max_target_positions=1024, upsample_primary=1, **SIZES,
        )
    )  # fmt: skip
    add_tags(model.words, ["__de__", "__en__", "__fr__"])
    plain = Namespace(**vars(args) | {"arch": "transformer"})
    state = random_parameters(plain, model.words, towards_end=0, seed=2)
    state = {f"models.{pair}.{name}": value for pair in pairs for name, value in state.items()}
    model.save(state, None, sections(args))
    model.pairs = ("de", "en"), ("en", "fr")
    model.task = (
        "--task=multilingual_translation", f"--lang-pairs={','.join(pairs)}",
        "--encoder-langtok=tgt", "--decoder-langtok",
    )  # fmt: skip
    return model


def xlmr(folder: Path) -> Model:
    """XLM-R: examples/xlmr/README.md and tasks/multilingual_masked_lm.py, which adds <mask>."""
    model = Model(folder)
    model.save_dictionaries("dict.txt")
    args = Namespace(
        arch="roberta_base", task="multilingual_masked_lm", criterion="masked_lm",
        data="/data/cc100", tokens_per_sample=32, max_positions=32, sample_break_mode="complete",
        mask_prob=0.15, leave_unmasked_prob=0.1, random_token_prob=0.1, mask_whole_words=False,
        multilang_sampling_alpha=0.7, freq_weighted_replacement=False, seed=1, **SIZES,
    )  # fmt: skip
    ARCH_CONFIG_REGISTRY[args.arch](args)
    model.words.add_symbol("<mask>")

    class Task:
        source_dictionary = target_dictionary = model.words

    torch.manual_seed(1)
    encoder = ARCH_MODEL_REGISTRY[args.arch].build_model(args, Task)
    model.save({name: 4 * value for name, value in encoder.state_dict().items()}, args)
    return model


def wmt19(folder: Path) -> Model:
    """FAIR's WMT19 model: examples/wmt19/README.md (``--bpe fastbpe --tokenizer moses``, one
    dictionary filled up with madeupwords, ``--share-all-embeddings``); options as a Namespace, with
    paths of the machine that trained it.
    """
    model = Model(folder)
    model.subwords = folder / "bpecodes"
    text = folder / "codes"
    learn_subwords(text, "subword_nmt", sentences(200), 90)
    merges = text.read_text().splitlines()[1:]
    text.unlink()
    model.subwords.write_text("".join(f"{merge} {9000 - n}\n" for n, merge in enumerate(merges)))
    model.words = Dictionary()
    pieces = {piece for merge in merges for piece in (*merge.split(), merge.replace(" ", ""))}
    for piece in sorted(pieces):
        symbol = piece.removesuffix("</w>") if piece.endswith("</w>") else f"{piece}@@"
        model.words.add_symbol(symbol, 9)
    model.words.finalize(padding_factor=8)
    model.save_dictionaries("dict.en.txt", "dict.de.txt")
    args = complete(
        Namespace(
            arch="transformer_wmt_en_de_big", task="translation", source_lang="en",
            target_lang="de", data="/private/home/edunov/wmt19/bin", bpe="fastbpe",
            bpe_codes="/private/home/edunov/wmt19/bpecodes", tokenizer="moses",
            criterion="label_smoothed_cross_entropy", left_pad_source="True",
            left_pad_target="False", max_source_positions=1024, max_target_positions=1024,
            share_all_embeddings=True, **SIZES,
        )
    )  # fmt: skip
    model.save(random_parameters(args, model.words), args)
    model.pairs = (("en", "de"),)
    return model


#: IndicTrans2's model_configs/custom_transformer.py, a package for --user-dir
INDICTRANS2_PACKAGE = """
from fairseq.models import register_model_architecture
from fairseq.models.transformer import base_architecture

register_model_architecture("transformer", "transformer_18_18")(base_architecture)
"""


def indictrans2(folder: Path) -> Model:
    """IndicTrans2: AI4Bharat/IndicTrans2's README.md and inference/engine.py: the task translation
    between the "languages" SRC and TGT with a dictionary for each, ``eng_Latn hin_Deva`` before the
    pieces of the source, an architecture of ``--user-dir model_configs``.
    """
    model = Model(folder)
    model.save_dictionaries("dict.TGT.txt")
    target = Dictionary.load(str(folder / "dict.TGT.txt"))
    languages = ["eng_Latn", "hin_Deva", "tam_Taml"]
    add_tags(model.words, languages).save(str(folder / "dict.SRC.txt"))
    package = folder / "model_configs"
    package.mkdir()
    (package / "__init__.py").write_text(INDICTRANS2_PACKAGE)
    args = complete(
        Namespace(
            arch="transformer", task="translation", source_lang="SRC", target_lang="TGT",
            data="/data/final_bin", left_pad_source=True, left_pad_target=False,
            max_source_positions=256, max_target_positions=256, encoder_normalize_before=True,
            decoder_normalize_before=True, share_decoder_input_output_embed=True,
            criterion="label_smoothed_cross_entropy", user_dir="model_configs", **SIZES,
        )
    )  # fmt: skip
    state = random_parameters(args, model.words, target)
    args.arch = "transformer_18_18"
    model.save(state, args)
    tags = {language: language for language in languages}
    description = {
        "format": "diet_fairseq model", "version": 1, "engine": "fairseq", "checkpoint": "model.pt",
        "data": ".", "source_lang": "eng_Latn", "target_lang": "hin_Deva",
        "subwords": {"kind": "sentencepiece", "model": "spm.model"},
        "directions": {
            "tags": tags, "pairs": [["eng_Latn", "hin_Deva"], ["eng_Latn", "tam_Taml"]],
            "source_prefix": ["{source}", "{target}"],
        },
    }  # fmt: skip
    (folder / "model.json").write_text(json.dumps(description))
    model.pairs, model.sides = (("eng_Latn", "hin_Deva"), ("eng_Latn", "tam_Taml")), ("SRC", "TGT")
    model.task = (f"--user-dir={package}",)
    return model
