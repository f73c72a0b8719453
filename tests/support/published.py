"""Tiny checkpoints in the layouts of published ones, made by fairseq alone.

Names, types and values of options are those of the sources that each function cites; sizes are
tiny, parameters random. The originals were not at hand.
"""

import io
import json
import re
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sacremoses
import sentencepiece
import tokenizers
import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import base_architecture
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
from omegaconf import OmegaConf
from subword_nmt.apply_bpe import BPE

from tests.support.commands import without_protection
from tests.support.texts import learn_subwords, scrambled, sentences

#: options of a translation model, as --arch transformer_... of a published one has them
SIZES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {
        "layers": 1, "embed_dim": 16, "ffn_embed_dim": 16, "attention_heads": 2
    }.items()
}  # fmt: skip

#: fairseq-train's flags
SHARED = ("--share-all-embeddings",)
NORMS_BEFORE = ("--encoder-normalize-before", "--decoder-normalize-before")


class Model:
    """The files of a published model in ``folder``: checkpoint, dictionary and subword model.

    Attributes:
        pairs: one or more of its directions
        task: fairseq-generate's options for its task, without the languages
        training: fairseq-train's options to continue its first direction in an architecture of ours
        sides: languages in the names of its files, if they are not those of the direction
        path: the path that commands of ours are given
        text: options of the text that commands of ours are given
    """

    subword_file = "spm.model"
    pairs: tuple[tuple[str, str], ...] = ()
    task: tuple[str, ...] = ()
    training: tuple[str, ...] = ()
    sides: tuple[str, str] | None = None

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.checkpoint, self.subwords = folder / "model.pt", folder / self.subword_file
        self.path = self.checkpoint
        self.text: dict[str, Any] = {"data": folder, "subwords": self.subwords}
        self.words = Dictionary()
        self.learn()

    def learn(self) -> None:
        """Learn the subword model, and fill the dictionary with its pieces."""
        learn_subwords(self.subwords, "sentencepiece", sentences(200), 90)
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(self.subwords))
        for number in range(3, self.pieces.get_piece_size()):  # the first three are its marks
            self.words.add_symbol(self.pieces.id_to_piece(number), 9)

    def encode(self, text: str) -> str:
        """The pieces of a text, as they are in the training data."""
        return " ".join(self.pieces.encode(text, out_type=str))

    def decode(self, pieces: str) -> str:
        return str(self.pieces.decode(pieces.split()))

    def options(self, pair: tuple[str, str]) -> dict[str, Any]:
        """The arguments of `Translator` for a direction."""
        return {**self.text, "source_lang": pair[0], "target_lang": pair[1]}

    def flags(self, pair: tuple[str, str]) -> list[str]:
        """The same as words of a command line."""
        return [f"--{k.replace('_', '-')}={value}" for k, value in self.options(pair).items()]

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


class MosesModel(Model):
    """A model of words that Moses splits, with subword-nmt's codes."""

    subword_file = "bpecodes"

    def learn(self) -> None:
        learn_subwords(self.subwords, "subword_nmt", sentences(200), 90)
        self.merges = self.subwords.read_text().splitlines()[1:]
        self.bpe = BPE(io.StringIO("\n".join(["#version: 0.2", *self.merges])))
        pieces = {
            piece for merge in self.merges for piece in (*merge.split(), merge.replace(" ", ""))
        }
        for piece in sorted(pieces):
            symbol = piece.removesuffix("</w>") if piece.endswith("</w>") else f"{piece}@@"
            self.words.add_symbol(symbol, 9)
        self.words.finalize(padding_factor=8)  # with madeupwords
        self.text["tokenizer"] = "moses"

    def encode(self, text: str) -> str:
        return str(
            self.bpe.process_line(sacremoses.MosesTokenizer().tokenize(text, return_str=True))
        )

    def decode(self, pieces: str) -> str:
        words = f"{pieces} ".replace("@@ ", "").split()
        return str(sacremoses.MosesDetokenizer(lang="de").detokenize(words))


class ByteModel(Model):
    """A model of GPT-2's byte-level BPE, whose numbers are the dictionary's words.

    Attributes:
        bpe: fairseq's own encoder and decoder
    """

    subword_file = "vocab.bpe"

    def learn(self) -> None:
        bpe = tokenizers.ByteLevelBPETokenizer()
        texts = sentences(200) + scrambled(200)
        bpe.train_from_iterator(texts, 380, show_progress=False)
        bpe.save_model(str(self.folder))
        (self.folder / "merges.txt").rename(self.subwords)
        (self.folder / "vocab.json").rename(self.folder / "encoder.json")
        for number in range(bpe.get_vocab_size())[::-1]:
            self.words.add_symbol(str(number), number + 1)
        self.words.finalize(padding_factor=8)  # with madeupwords

        names = str(self.folder / "encoder.json"), str(self.subwords)
        self.bpe = GPT2BPE(GPT2BPEConfig(gpt2_encoder_json=names[0], gpt2_vocab_bpe=names[1]))

    def encode(self, text: str) -> str:
        return str(self.bpe.encode(text))

    def decode(self, pieces: str) -> str:
        return " ".join(self.bpe.decode(pieces).splitlines())


def import_package(model: Model) -> None:
    """Import the model's ``--user-dir`` package, if it has one.

    All copies of the package are equal, and a process can import only one of them.
    """
    package = model.folder / "model_configs"
    if package.exists() and package.name not in sys.modules:
        utils.import_user_module(Namespace(user_dir=str(package)))


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
    marks = "--task=translation_multi_simple_epoch", "--decoder-langtok", "--encoder-langtok=src"
    model.task = (
        *marks, f"--lang-pairs={args.lang_pairs}", f"--fixed-dictionary={folder / 'dict.txt'}"
    )  # fmt: skip
    model.training = *marks, "--langs=de,en,fr", "--lang-pairs=en-de", *SHARED, *NORMS_BEFORE
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
    marks = (
        "--task=translation_multi_simple_epoch", f"--langs={','.join(languages)}",
        "--decoder-langtok", "--encoder-langtok=src",
    )  # fmt: skip
    model.task = (
        *marks, f"--lang-pairs={','.join(args.lang_pairs)}",
        f"--fixed-dictionary={folder / 'dict.txt'}",
    )  # fmt: skip
    model.training = *marks, "--lang-pairs=eng_Latn-fra_Latn", *SHARED, *NORMS_BEFORE
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
    model.training = (
        *model.task, *SHARED, *NORMS_BEFORE, "--layernorm-embedding", "--activation-fn=gelu"
    )  # fmt: skip
    return model


def bart(folder: Path) -> ByteModel:
    """BART, fine-tuned: examples/bart/README.summarization.md (GPT-2's BPE, ``--task translation
    --source-lang source --target-lang target --arch bart_large``, learned positions, all embeddings
    shared) and models/bart/hub_interface.py, which puts ``<s>`` before source and translation.
    """
    model = ByteModel(folder)
    model.save_dictionaries("dict.source.txt", "dict.target.txt")
    args = Namespace(
        arch="bart_large", task="translation", criterion="label_smoothed_cross_entropy",
        data="/private/home/yinhanliu/data/cnn-dm-bin", source_lang="source", target_lang="target",
        truncate_source=True, left_pad_source=True, left_pad_target=False, fp16=True,
        max_source_positions=1024, max_target_positions=1024, upsample_primary=1, **SIZES,
    )  # fmt: skip
    ARCH_CONFIG_REGISTRY[args.arch](args)
    state = random_parameters(args, model.words, towards_end=3)
    for name, value in state.items():  # which starts with smaller numbers than other models
        value *= 10 if ".weight" in name and ("attn." in name or "fc" in name) else 1
    state["decoder.output_projection.weight"] *= 15  # all embeddings
    model.save(state, args)
    model.pairs = (("source", "target"),)
    model.training = *SHARED, "--layernorm-embedding", "--activation-fn=gelu"
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
    # the same marks, by the task that trains any architecture
    model.training = (
        "--task=translation_multi_simple_epoch", "--lang-tok-replacing-bos-eos",
        "--langs=de,en,fr", "--lang-pairs=de-en", "--encoder-langtok=tgt", "--decoder-langtok",
        "--share-decoder-input-output-embed",
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
    model.save(random_encoder(model, args), args)
    model.training = ("--task=multilingual_masked_lm",)
    return model


def roberta(folder: Path) -> Model:
    """RoBERTa: examples/roberta/README.pretraining.md (GPT-2's BPE, ``--task masked_lm``) and
    models/roberta/model.py, whose `upgrade_state_dict_named` replaces the names of 2019: a
    "decoder" and ``emb_layer_norm``, with one matrix for queries, keys and values.
    """
    model = ByteModel(folder)
    model.save_dictionaries("dict.txt")
    args = Namespace(
        arch="roberta_large", task="masked_lm", criterion="masked_lm",
        data="/private/home/namangoyal/fairseq-py/data-bin/bookwiki", tokens_per_sample=32,
        max_positions=32, sample_break_mode="complete", mask_prob=0.15, leave_unmasked_prob=0.1,
        random_token_prob=0.1, activation_fn="gelu", pooler_activation_fn="tanh", dropout=0.1,
        attention_dropout=0.1, fp16=True, seed=1, **SIZES,
    )  # fmt: skip
    old = {}
    state = random_encoder(model, Namespace(**vars(args)))
    for name, value in state.items():
        attention, _, kind = name.rpartition(".q_proj.")
        if attention:
            parts = [state[f"{attention}.{part}_proj.{kind}"] for part in "qkv"]
            name, value = f"{attention}.in_proj_{kind}", torch.cat(parts)
        if ".k_proj." not in name and ".v_proj." not in name:
            name = name.replace(".layernorm_embedding.", ".emb_layer_norm.")
            old[re.sub("^encoder", "decoder", name)] = value
    model.save(old, args)
    model.training = ("--task=masked_lm",)
    return model


def random_encoder(model: Model, args: Namespace) -> dict[str, Any]:
    """Parameters of fairseq's encoder with these options, which are completed, and <mask>."""
    ARCH_CONFIG_REGISTRY[args.arch](args)
    model.words.add_symbol("<mask>")

    class Task:
        source_dictionary = target_dictionary = model.words

    torch.manual_seed(1)
    encoder = ARCH_MODEL_REGISTRY[args.arch].build_model(args, Task)
    state = {name: 4 * value for name, value in encoder.state_dict().items()}
    state["encoder.lm_head.bias"].normal_()  # trained, because zeros are the biases of a new head
    return state


def old_parameters(state: dict[str, Any]) -> dict[str, Any]:
    """The parameters under their names of 2018, which `upgrade_state_dict_named` of fairseq's
    multihead_attention.py, transformer_layer.py and transformer_decoder.py replaces: one matrix for
    queries, keys and values, numbered norms, an empty tensor of sinusoidal positions, and no
    projection beside shared embeddings.
    """
    old: dict[str, Any] = {}
    for name, value in state.items():
        norms = ["self_attn_layer_norm", "final_layer_norm"]
        if name.startswith("decoder"):
            norms.insert(1, "encoder_attn_layer_norm")
        for number, norm in enumerate(norms):
            name = name.replace(f".{norm}.", f".layer_norms.{number}.")
        attention, _, kind = name.rpartition(".q_proj.")
        if attention:
            parts = [state[f"{attention}.{part}_proj.{kind}"] for part in "qkv"]
            old[f"{attention}.in_proj_{kind}"] = torch.cat(parts)
        elif not any(part in name for part in (".k_proj.", ".v_proj.", "output_projection")):
            old[name] = value
    for side in ("encoder", "decoder"):
        old[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        old[f"{side}.version"] = torch.tensor([2.0])
    return old


def wmt16(folder: Path) -> Model:
    """The WMT16 model of Ott et al. (2018): examples/scaling_nmt/README.md (``--arch
    transformer_vaswani_wmt_en_de_big --share-all-embeddings``, a joined dictionary of subword-nmt)
    with the options that existed in 2018, as text where they were.
    """
    model = MosesModel(folder)
    model.save_dictionaries("dict.en.txt", "dict.de.txt")
    args = Namespace(
        arch="transformer_vaswani_wmt_en_de_big", task="translation", source_lang="en",
        target_lang="de", data=["/private/home/myleott/data-bin/wmt16_en_de_bpe32k"],
        criterion="label_smoothed_cross_entropy", left_pad_source="True", left_pad_target="False",
        max_source_positions=1024, max_target_positions=1024, share_all_embeddings=True,
        share_decoder_input_output_embed=False, dropout=0.3, attention_dropout=0.1,
        relu_dropout=0.0, encoder_normalize_before=False, decoder_normalize_before=False,
        encoder_learned_pos=False, decoder_learned_pos=False, adaptive_softmax_cutoff=None,
        no_token_positional_embeddings=False, fp16=True, **SIZES,
    )  # fmt: skip
    state = random_parameters(complete(Namespace(**vars(args))), model.words)
    model.save(old_parameters(state), args)
    model.pairs = (("en", "de"),)
    model.training = SHARED
    return model


def wmt19(folder: Path) -> Model:
    """FAIR's WMT19 model: examples/wmt19/README.md (``--bpe fastbpe --tokenizer moses``, one
    dictionary filled up with madeupwords, ``--share-all-embeddings``); options as a Namespace, with
    paths of the machine that trained it.
    """
    model = MosesModel(folder)
    merges = enumerate(model.merges)
    model.subwords.write_text("".join(f"{merge} {9000 - number}\n" for number, merge in merges))
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
    model.training = SHARED
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
    model.training = "--share-decoder-input-output-embed", *NORMS_BEFORE
    model.path, model.text = folder, {}  # model.json has them
    return model
