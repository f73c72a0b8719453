"""Rules for the options of fairseq's commands, checked before a run starts.

fairseq accepts most values unchecked and fails in the middle of a run, or does something else than
what was asked for. The rules are about what is on the command line, whatever model it names.
"""

import json
import math
import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from fairseq.registry import REGISTRIES

from ..checks import betas
from ..errors import UserError
from ..literals import literal

#: what `--remove-bpe` and its kin can undo
SUBWORDS = ("subword_nmt", "sentencepiece", "wordpiece", "letter", "silence", "_EOW", "none",
            "@@ ", "@@")  # fmt: skip


#: what joins words again for `--eval-bleu`
TOKENIZERS = REGISTRIES["tokenizer"]["registry"]
#: tasks that mask tokens to predict them; to others --mask-prob 0 means that nothing is masked
MASKING = ("masked_lm", "masked_lm_nsp", "multilingual_masked_lm")
#: criteria that need the probabilities of all words, of which an adaptive softmax has no gradient
OVER_ALL_WORDS = ("cross_entropy", "label_smoothed_cross_entropy",
                  "label_smoothed_cross_entropy_with_alignment",
                  "fused_label_smoothed_cross_entropy")  # fmt: skip
#: options that most people call by another name
CALLED = {"post_process": "--remove-bpe"}


class Rule(NamedTuple):
    """``--option must be <words>, but is <value>``, unless it ``holds``."""

    words: str
    holds: Callable[[Any], bool]


def number(words: str, holds: Callable[[float], bool]) -> Rule:
    # What is still text is a reference to another option, such as "${dataset.batch_size}".
    return Rule(words, lambda value: isinstance(value, str) or holds(value))


def at_least(least: float) -> Rule:
    return number(f"at least {least}", lambda value: least <= value < math.inf)


def _reads(read: Callable[[str], Any]) -> Callable[[str], bool]:
    def holds(value: Any) -> bool:
        try:
            return not isinstance(value, str) or isinstance(read(value), dict)
        except ValueError:
            return False

    return holds


SHARE = number("from 0 to 1", lambda value: 0 <= value <= 1)
FINITE = number("a number", math.isfinite)
POSITIVE = number("above 0", lambda value: 0 < value < math.inf)
SEED = number("from 0 to 4294967295", lambda value: 0 <= value < 2**32)

PROBABILITIES = """
    dropout attention_dropout activation_dropout relu_dropout pooler_dropout
    adaptive_softmax_dropout encoder_layerdrop decoder_layerdrop
    label_smoothing mask_prob leave_unmasked_prob random_token_prob ema_decay
"""

#: The rule, and the options that keep it; of a list, every part does.
RULES: list[tuple[Rule, str]] = [
    (at_least(1), """
        max_tokens max_tokens_valid batch_size batch_size_valid update_freq
        required_batch_size_multiple required_seq_len_multiple
        log_interval save_interval validate_interval ema_update_freq
        distributed_world_size model_parallel_size
        beam nbest iter_decode_with_beam
        encoder_layers decoder_layers encoder_embed_dim decoder_embed_dim
        encoder_ffn_embed_dim decoder_ffn_embed_dim
        encoder_attention_heads decoder_attention_heads
        decoder_output_dim
        max_source_positions max_target_positions max_positions tokens_per_sample
        workers padding_factor checkpoint_shard_count
    """),
    (at_least(0), """
        lr warmup_updates max_update max_epoch total_num_update stop_time_hours
        num_workers data_buffer_size empty_cache_freq
        save_interval_updates validate_interval_updates validate_after_updates curriculum
        weight_decay adam_eps ema_start_update buffer_size max_valid_steps
        max_len_a max_len_b min_len prefix_size
        thresholdsrc thresholdtgt
    """),
    (at_least(-1), """
        keep_interval_updates keep_interval_updates_pattern keep_last_epochs keep_best_checkpoints
        patience warmup_init_lr nwordssrc nwordstgt
    """),
    (SHARE, PROBABILITIES),
    (FINITE, "lenpen unkpen clip_norm lm_weight diverse_beam_strength diversity_rate"),
    (POSITIVE, "temperature"),
    (SEED, "seed"),
    # all single words that were said, the end among them, would be forbidden
    (number("0 or at least 2", lambda value: value == 0 or value >= 2), "no_repeat_ngram_size"),
    (number("at least 1, or -1 for all", lambda value: value == -1 or value >= 1), "sampling_topk"),
    (
        number("above 0 and at most 1, or -1 for all", lambda value: value == -1 or 0 < value <= 1),
        "sampling_topp",
    ),
    (
        Rule(f"one of {', '.join(SUBWORDS[:-2])}", lambda value: value in SUBWORDS),
        "post_process eval_bleu_remove_bpe",
    ),
    (
        Rule(f"one of {', '.join(TOKENIZERS)}", lambda value: value in TOKENIZERS),
        "eval_bleu_detok",
    ),
    (
        Rule("a Python dictionary such as \"{'dropout': 0.1}\"", _reads(literal)),
        "model_overrides",
    ),
    (
        Rule("""a JSON object such as '{"beam": 4}'""", _reads(json.loads)),
        "eval_bleu_args eval_bleu_detok_args",
    ),
]  # fmt: skip


def check(args: Namespace) -> None:
    """Refuse the first value that breaks a rule.

    Raises:
        UserError: naming the option, the rule and the value
    """
    for rule, options in RULES:
        for name in options.split():
            given, flag = getattr(args, name, None), CALLED.get(name, f"--{name.replace('_', '-')}")
            if given == []:
                raise UserError(f"{flag} must have a value, but is []")
            for value in given if isinstance(given, (list, tuple)) else [given]:
                if value is not None and not rule.holds(value):
                    raise UserError(f"{flag} must be {rule.words}, but is {value}")
    if getattr(args, "eval_bleu_args", None):
        _check_search(json.loads(args.eval_bleu_args))
    if getattr(args, "adam_betas", None) is not None:
        betas("--adam-betas", args.adam_betas)
    for mistake in contradictions(args):
        raise UserError(mistake)


def _check_search(given: dict[str, Any]) -> None:
    """Refuse what --eval-bleu-args can't mean: fairseq ignores it, or fails at the first BLEU."""
    known = {field.name: field.default for field in fields(GenerationConfig)}
    for name, value in given.items():
        if name not in known:
            raise UserError(
                f"--eval-bleu-args has {name}, which is no option of a search: names are those of "
                "fairseq-generate, such as beam, lenpen or max_len_b"
            )
        if isinstance(known[name], int | float) and not isinstance(value, int | float):
            raise UserError(f"{name} of --eval-bleu-args must be a number, but is {value!r}")
    try:
        check(Namespace(**given))
    except UserError as error:
        raise UserError(f"--eval-bleu-args: {error}") from error


def contradictions(args: Namespace) -> Iterator[str]:
    """Refuse values that are valid by themselves but not together."""

    def of(name: str) -> Any:
        return getattr(args, name, None)

    if of("beam") and of("nbest") and of("nbest") > of("beam"):
        yield (
            f"--nbest {of('nbest')} is more than the search finds: take a --beam of at least "
            f"{of('nbest')}, but it is {of('beam')}, or a smaller --nbest"
        )
    groups = of("diverse_beam_groups") or -1
    if groups > 0 and of("beam") % groups:
        yield (
            f"--diverse-beam-groups {groups} does not divide --beam {of('beam')}: change one of "
            "the two"
        )
    if of("lr_scheduler") == "inverse_sqrt" and of("warmup_updates") == 0:
        yield (
            "--lr-scheduler inverse_sqrt needs --warmup-updates of at least 1, but it is 0: its "
            "rate falls from where the warm-up ends"
        )
    if of("task") in MASKING and of("mask_prob") in (0, 1):
        yield (
            f"--mask-prob must be above 0 and below 1 with --task {of('task')}, but is "
            f"{of('mask_prob')}: 0.15 is usual"
        )
    if (of("fp16") or of("memory_efficient_fp16")) and (of("bf16") or of("memory_efficient_bf16")):
        yield "--fp16 and --bf16 are two kinds of numbers: give one of them"
    if of("tie_adaptive_weights") and of("adaptive_softmax_cutoff") and translates(of("arch")):
        yield (
            "--tie-adaptive-weights needs the adaptive input of fairseq's language models, but "
            f"--arch {of('arch')} translates: leave it out"
        )
    if of("quant_noise_scalar") and not torch.cuda.is_available():
        yield f"--quant-noise-scalar {of('quant_noise_scalar')} needs a GPU: leave it out"
    if of("best_checkpoint_metric") == "bleu" and not of("eval_bleu"):
        yield "--best-checkpoint-metric bleu needs --eval-bleu, which measures it: give both"
    if of("best_checkpoint_metric") == "accuracy" and of("report_accuracy") is False:
        yield "--best-checkpoint-metric accuracy needs --report-accuracy: give both"
    if of("combine_valid_subsets") and "," in of("valid_subset"):
        yield (
            f"--combine-valid-subsets reads valid, valid1, ... as one, and --valid-subset is "
            f"{of('valid_subset')}: leave one of them out"
        )
    if of("adaptive_softmax_cutoff") and of("criterion"):
        yield from _softmax_that_can_not_be_trained(args)
    if hasattr(args, "path") and not args.path:
        yield "--path is missing: name the checkpoint to use"
    if hasattr(args, "replace_unk"):
        yield from _unread(args, interactive=hasattr(args, "buffer_size"))
    if hasattr(args, "destdir"):
        yield from _unprepared(args)


def _softmax_that_can_not_be_trained(args: Namespace) -> Iterator[str]:
    if args.criterion in OVER_ALL_WORDS:
        yield (
            f"--criterion {args.criterion} can't train an adaptive softmax "
            "(--adaptive-softmax-cutoff): take --criterion adaptive_loss"
        )
    if args.criterion == "adaptive_loss" and args.ddp_backend not in ("legacy_ddp", "no_c10d"):
        yield (
            "--criterion adaptive_loss needs --ddp-backend legacy_ddp, as parts of the softmax may "
            f"have no gradient, but it is {args.ddp_backend}: give that"
        )


def _unread(args: Namespace, interactive: bool) -> Iterator[str]:
    """What fairseq-generate or fairseq-interactive would silently ignore, or fail at."""
    if args.replace_unk is not None:
        yield (
            "--replace-unk ends in an error in this version of fairseq: leave it out; with "
            "subwords hardly a word is unknown"
        )
    if args.constraints and not interactive:
        yield "--constraints are read by fairseq-interactive only: use that, or leave it out"
    if args.score_reference and args.print_alignment:
        yield "--print-alignment is of translations, and --score-reference makes none: give one"
    ignored = ["num_shards"]
    if interactive:
        ignored += ["prefix_size", "lm_path", "results_path", "score_reference"]
    program = "fairseq-interactive" if interactive else "fairseq-generate"
    for name in ignored:
        given, usual = getattr(args, name), 1 if name == "num_shards" else 0
        if given not in (None, False, usual):
            cure = "split the text" if name == "num_shards" else "use fairseq-generate"
            yield (f"--{name.replace('_', '-')} is not read by {program}: {cure}, or leave it out")


def translates(arch: str | None) -> bool:
    model = ARCH_MODEL_REGISTRY.get(arch, object)
    return issubclass(model, FairseqEncoderDecoderModel)


def _unprepared(args: Namespace) -> Iterator[str]:
    """What fairseq-preprocess would find missing after it has written half of the data."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    if not args.only_source and None in languages:
        yield "--source-lang and --target-lang are needed, or --only-source for text alone"
    for option in ("trainpref", "validpref", "testpref"):
        prefixes = getattr(args, option) or ""
        for prefix in prefixes.split(",") if option != "trainpref" else [prefixes]:
            for language in languages if prefix else []:
                file = f"{prefix}.{language}" if language else prefix
                if not os.path.isfile(file):
                    yield (
                        f"--{option} {prefix}: there is no file {file}: check the prefix and the "
                        "languages"
                    )
    for option in ("srcdict", "tgtdict", "alignfile"):
        file = getattr(args, option)
        if file and not os.path.isfile(file):
            yield f"--{option} {file}: there is no such file: check the path"
