"""All that importing the plugin changes outside of it: ``python -m diet_fairseq patches``."""

import os
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace

import fairseq
import numpy as np

from .. import __name__ as plugin
from .. import __path__ as plugin_path
from .. import interrupts
from ..stack import warm_start
from . import (
    archives,
    batches,
    bfloat16,
    command_line,
    explaining,
    limits,
    loading,
    long_lines,
    masking,
    notices,
    precision,
    program,
    progress,
    runs,
    saving,
    schedule,
    search,
    sharding,
    validation,
)
from .patch import ADD, NAMES, REPLACE, WRAP, Patch, Patches, Setting


def _spelled_as_fairseq_does() -> Callable[[], None]:
    spelling = os.path.join(os.path.dirname(fairseq.__file__), "..", plugin)
    plugin_path.append(spelling)
    return partial(plugin_path.remove, spelling)


#: fairseq's modules that load what is no checkpoint of a whole run, with `torch.load`
LOADERS = (
    "fairseq.data.codedataset",
    "fairseq.models.speech_to_text.xm_transformer",
    "fairseq.models.text_to_speech.vocoder",
    "fairseq.modules.quantization.pq.em",
)

#: Where several rows have one target, the last is outermost: it is called first.
TABLE: tuple[Patch | Setting, ...] = (
    # --- loading: nothing in a checkpoint is run --------------------------------------------------
    *(
        Patch(
            f"{module}:torch",
            NAMES,
            {"load": loading.read_any},
            why="a file that is loaded can run any program",
            until="fairseq passes weights_only",
        )
        for module in LOADERS
    ),
    *(
        Patch(
            f"{package}.*:eval",
            ADD,
            loading.evaluate,
            why="text of a checkpoint's configuration is run as a program",
            until="fairseq reads literals by ast.literal_eval",
        )
        for package in ("fairseq", "fairseq_cli")
    ),
    Patch(
        "fairseq.checkpoint_utils:torch",
        NAMES,
        {"load": loading.read_without_files},
        why="a checkpoint can run any program, and names files that fairseq opens or downloads",
        until="fairseq passes weights_only, and its checkpoints hold plain containers only",
    ),
    *(
        Patch(
            f"{module}:convert_namespace_to_omegaconf",
            WRAP,
            loading.converted,
            why="old options become sections by way of text that is looked up and run",
            until="fairseq makes sections without text",
        )
        for module in ("fairseq.models.*", "fairseq.checkpoint_utils")
    ),
    Patch(
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        WRAP,
        loading.to_cpu,
        why="a damaged or hostile checkpoint ends in a traceback, or is loaded",
        until="fairseq says what is wrong with a checkpoint",
    ),
    Patch(
        "fairseq.checkpoint_utils:load_model_ensemble_and_task",
        WRAP,
        loading.one_by_one,
        why="what is wrong with one of several models does not name it",
        until="fairseq says what is wrong with a checkpoint",
    ),
    Patch(
        "fairseq.trainer:Trainer.load_checkpoint",
        WRAP,
        loading.restored,
        why="a checkpoint that can't be resumed from ends in a traceback",
        until="fairseq says what is wrong with a checkpoint",
    ),
    Patch(
        "fairseq.trainer:Trainer.load_checkpoint",
        WRAP,
        loading.average.kept,
        why="--store-ema can't start from a checkpoint that has no average",
        until="fairseq keeps the parameters until the average has begun",
    ),
    Patch(
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        WRAP,
        loading.average.begun,
        why="--store-ema can't start from a checkpoint that has no average",
        until="fairseq keeps the parameters until the average has begun",
    ),
    Patch(
        "fairseq.trainer:Trainer.load_checkpoint",
        WRAP,
        loading.options.known,
        why="training goes on with options that change what loaded parameters mean",
        until="fairseq compares a checkpoint's options with the model's",
    ),
    Patch(
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        WRAP,
        loading.options.compared,
        why="training goes on with options that change what loaded parameters mean",
        until="fairseq compares a checkpoint's options with the model's",
    ),
    Patch(
        "fairseq.data.encoders:build_bpe",
        WRAP,
        loading.built_bpe,
        why="a damaged file of subwords ends in a traceback",
        until="fairseq says what is wrong with it",
    ),
    Patch(
        "fairseq.data.encoders:build_tokenizer",
        WRAP,
        loading.built_tokenizer,
        why="a tokenizer that can't be set up ends in a traceback",
        until="fairseq says what is wrong with it",
    ),
    Patch(
        "fairseq.distributed.utils:torch",
        NAMES,
        {"load": loading.read_broadcast},
        why="what one process broadcasts can run any program in another",
        until="fairseq passes weights_only",
    ),
    Patch(
        "fairseq.distributed.utils:broadcast_object",
        WRAP,
        loading.plainly,
        why="a checkpoint that is broadcast holds omegaconf's types, which are not loaded",
        until="fairseq broadcasts plain containers",
    ),
    Patch(
        "fairseq.file_utils:tarfile",
        NAMES,
        {"open": archives.ModelArchive.open},
        why="an archive of a model writes wherever its names and links lead",
        until="fairseq unpacks with a filter (PEP 706), and no links",
    ),
    Patch(
        "fairseq.file_utils:load_archive_file",
        WRAP,
        archives.explained,
        why="what is no archive of a model ends in a traceback, or in None",
        until="fairseq says what is wrong with it",
    ),
    # --- training: when it ends, what it saves, what it resumes from ------------------------------
    Patch(
        "fairseq.trainer:Trainer.early_stop",
        ADD,
        {},
        why="the count of --patience is in no checkpoint",
        until="fairseq saves what it counts",
    ),
    Patch(
        "fairseq.trainer:Trainer.save_checkpoint",
        WRAP,
        limits.with_counts,
        why="the count of --patience is in no checkpoint",
        until="fairseq saves what it counts",
    ),
    Patch(
        "fairseq.checkpoint_utils:load_checkpoint",
        WRAP,
        limits.finished,
        why="a finished run that is started again makes one more update",
        until="fairseq looks at its limits before an update",
    ),
    Patch(
        "sys:excepthook",
        WRAP,
        interrupts.in_words,
        why="Ctrl-C ends in a traceback",
        until="fairseq's commands handle Ctrl-C",
    ),
    Patch(
        "fairseq.distributed.utils:call_main",
        WRAP,
        program.changed,
        why="checkpoint_best.pt is not the best if no save was due, and --patience starts anew",
        until="fairseq saves every best checkpoint, and counts on",
    ),
    Patch(
        "fairseq.distributed.utils:call_main",
        WRAP,
        program.alone,
        why="two trainings that write to one folder spoil each other's checkpoints",
        until="fairseq keeps a second training out of a folder",
    ),
    Patch(
        "fairseq.distributed.utils:call_main",
        WRAP,
        program.interruptible_training,
        why="Ctrl-C does not say how to go on",
        until="fairseq-train handles Ctrl-C",
    ),
    Patch(
        "fairseq.checkpoint_utils:torch_persistent_save",
        REPLACE,
        saving.save,
        why="a run that is killed while it saves loses its checkpoint",
        until="fairseq syncs and renames every file that it writes",
    ),
    Patch(
        "fairseq.checkpoint_utils:PathManager",
        NAMES,
        {"copy": saving.copy},
        why="a run that is killed while it copies loses its checkpoint",
        until="fairseq syncs and renames every file that it writes",
    ),
    Patch(
        "fairseq.checkpoint_utils:save_checkpoint",
        WRAP,
        saving.numbering_epochs_ends,
        why="--no-epoch-checkpoints --save-interval-updates N saves nothing where an epoch ends",
        until="fairseq saves there",
    ),
    Patch(
        "fairseq_cli.train:get_valid_stats",
        WRAP,
        saving.measured,
        why="a --best-checkpoint-metric that isn't measured ends in a traceback",
        until="fairseq says what it measures",
    ),
    Patch(
        "fairseq.checkpoint_utils:verify_checkpoint_directory",
        REPLACE,
        saving.prepare_save_dir,
        why="a folder that can't be written to is a warning, and what killed saves left stays",
        until="fairseq stops if it can't save",
    ),
    Patch(
        "fairseq.distributed.utils:call_main",
        WRAP,
        saving.checked,
        why="a --restore-file that isn't there is silently ignored",
        until="fairseq looks at --restore-file and --save-dir before it trains",
    ),
    Patch(
        "fairseq.distributed.utils:call_main",
        WRAP,
        runs.checked,
        why="several processes without GPUs train nothing, and end with status 0",
        until="fairseq starts processes without GPUs, or refuses to",
    ),
    Patch(
        "fairseq.distributed.utils:all_gather_list",
        WRAP,
        runs.on_cpus,
        why="processes without GPUs gather lists through the memory of a GPU",
        until="fairseq gathers through the memory that the processes have",
    ),
    Patch(
        "fairseq.trainer:Trainer.train_step",
        WRAP,
        runs.explained,
        why="a run whose gradients are not finite does not say which update it was",
        until="fairseq says which update failed",
        needed_with="PyTorch 2",
    ),
    Patch(
        "fairseq.trainer:Trainer.load_checkpoint",
        WRAP,
        progress.counts_on,
        why="a resumed run logs that it has taken 0 seconds",
        until="fairseq starts the stopwatch that it loads",
    ),
    Patch(
        "fairseq.trainer:Trainer.load_checkpoint",
        WRAP,
        warm_start.announced,
        why="a model does not know that --finetune-from-model loads it",
        until="fairseq tells the model what it is loaded for",
    ),
    Patch(
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        WRAP,
        warm_start.described,
        why="a model that --finetune-from-model loads can't know what the parameters mean",
        until="fairseq hands the checkpoint's configuration to the model",
    ),
    Patch(
        "fairseq.trainer:Trainer.get_train_iterator",
        WRAP,
        schedule.tells_epoch_size,
        why="a learning rate schedule does not know how many batches an epoch has",
        until="fairseq tells the schedule",
    ),
    Patch(
        "fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.state_dict",
        WRAP,
        precision.with_exact_parameters,
        why="a run in half precision that is resumed goes on from rounded parameters",
        until="fairseq saves the parameters in float32",
    ),
    Patch(
        "fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.load_state_dict",
        WRAP,
        precision.from_exact_parameters,
        why="a run in half precision that is resumed goes on from rounded parameters",
        until="fairseq saves the parameters in float32",
    ),
    Patch(
        "fairseq.trainer:torch",
        NAMES,
        {"tensor": precision.tensor},
        why="an overflow of --fp16 asks for a GPU, and ends the run where there is none",
        until="fairseq's Trainer uses its own device",
    ),
    *(
        Patch(
            f"fairseq.trainer:Trainer.{step}",
            WRAP,
            bfloat16.quick,
            why="--bf16 on a CPU without instructions for it takes ten times as long as float32",
            until="PyTorch multiplies bfloat16 in float32 there",
        )
        for step in ("train_step", "valid_step")
    ),
    Patch(
        "fairseq.models.fairseq_model:BaseFairseqModel.prepare_for_inference_",
        WRAP,
        bfloat16.at_inference,
        why="commands that translate and score ignore --bf16",
        until="fairseq-generate looks at --bf16",
    ),
    # --- several processes ------------------------------------------------------------------------
    Patch(
        "fairseq.trainer:Trainer.is_fsdp",
        REPLACE,
        False,
        why="a sharded run asks for fairscale, and refuses --bf16",
        until="fairseq shards by PyTorch's fully_shard",
    ),
    Patch(
        "fairseq.trainer:Trainer.__init__",
        WRAP,
        sharding.in_its_precision,
        why="--bf16 would leave no float32 parameters to shard",
        until="fairseq shards by PyTorch's fully_shard",
    ),
    Patch(
        "fairseq.models:DistributedFairseqModel",
        WRAP,
        sharding.by_fsdp2,
        why="--ddp-backend fully_sharded needs fairscale, which is no longer developed",
        until="fairseq shards by PyTorch's fully_shard",
    ),
    Patch(
        "fairseq.trainer:Trainer._build_optimizer",
        WRAP,
        sharding.with_whole_state,
        why="each process of a sharded run has a part of the optimizer's state",
        until="fairseq shards by PyTorch's fully_shard",
    ),
    Patch(
        "fairseq.trainer:Trainer.clip_grad_norm",
        WRAP,
        sharding.over_all_parts,
        why="the norm of sharded gradients is that of a part",
        until="fairseq shards by PyTorch's fully_shard",
    ),
    Patch(
        "fairseq.trainer:Trainer.always_call_state_dict_during_save_checkpoint",
        WRAP,
        sharding.gathers,
        why="a sharded checkpoint needs the parts of all processes",
        until="fairseq shards by PyTorch's fully_shard",
    ),
    Patch(
        "fairseq.models.distributed_fairseq_model:DistributedDataParallel",
        WRAP,
        sharding.without_device,
        why="--ddp-backend pytorch_ddp names a GPU where there is none",
        until="fairseq starts processes without GPUs",
    ),
    # --- data -------------------------------------------------------------------------------------
    Patch(
        "fairseq.tasks.masked_lm:MaskedLMTask.args",
        ADD,
        None,
        why="--mask-whole-words ends in an AttributeError",
        until="fairseq's task masked_lm reads --bpe",
    ),
    Patch(
        "fairseq.tasks.masked_lm:get_whole_word_mask",
        REPLACE,
        masking.word_starts,
        why="--mask-whole-words does not know SentencePiece's words",
        until="fairseq's task masked_lm reads --bpe",
    ),
    Patch(
        "fairseq.data.iterators:EpochBatchIterator.__init__",
        WRAP,
        masking.fresh_workers,
        why="dynamic masking masks the same tokens in every epoch",
        until="fairseq tells its data loader's processes of a new epoch",
    ),
    *(
        Patch(
            f"fairseq.data.{module}:np",
            NAMES,
            {"compat": SimpleNamespace(long=np.int64)},
            why="--sample-break-mode eos and bucketed lengths end in an AttributeError",
            until="fairseq doesn't ask for np.compat",
            needed_with="NumPy 2",
        )
        for module in ("language_pair_dataset", "token_block_dataset")
    ),
    Patch(
        "fairseq.data.data_utils:np",
        NAMES,
        {"percentile": batches.percentile},
        why="--num-batch-buckets ends in a TypeError",
        until="fairseq asks NumPy for a method",
        needed_with="NumPy 2",
    ),
    Patch(
        "fairseq.data.data_utils:batch_by_size",
        WRAP,
        batches.whole,
        why="the last batch is left out if its size is not a multiple of 8",
        until="fairseq translates, scores and trains on all sentences",
    ),
    Patch(
        "fairseq.tasks.fairseq_task:FairseqTask.get_batch_iterator",
        WRAP,
        batches.same_batches,
        why="a run that is resumed within an epoch sees sentences twice, and others never",
        until="fairseq resumes with the batches that it stopped with",
    ),
    Patch(
        "fairseq.data.iterators:EpochBatchIterator._get_iterator_for_epoch",
        WRAP,
        batches.reshuffled,
        why="--curriculum leaves the whole run unshuffled, until it is resumed",
        until="fairseq shuffles when the curriculum ends",
    ),
    Patch(
        "fairseq.data.iterators:EpochBatchIterator.state_dict",
        WRAP,
        batches.with_size,
        why="a run that is resumed on other GPUs sees sentences twice, and others never",
        until="fairseq saves how many processes share an epoch",
    ),
    Patch(
        "fairseq.data.iterators:EpochBatchIterator.load_state_dict",
        WRAP,
        batches.continued,
        why="a run that is resumed on other GPUs sees sentences twice, and others never",
        until="fairseq saves how many processes share an epoch",
    ),
    Patch(
        "fairseq.data.iterators:GroupedIterator.__init__",
        WRAP,
        batches.whole_rest,
        why="resumed with another --update-freq, an epoch is trained once more",
        until="fairseq counts the groups that are left",
    ),
    Patch(
        "fairseq.data.iterators:BufferedIterator.__del__",
        ADD,
        batches.stopped,
        why="a validation cut by --max-valid-steps leaves a process and a thread behind",
        until="fairseq ends the thread of an iterator that is left",
    ),
    # --- commands ---------------------------------------------------------------------------------
    Patch(
        "fairseq.distributed.utils:call_main",
        WRAP,
        long_lines.passing_over,
        why="fairseq-interactive ends at a line that is too long, and others are lost with it",
        until="fairseq-interactive skips lines that are too long",
    ),
    Patch(
        "fairseq.options:argparse",
        NAMES,
        {"ArgumentParser": command_line.Parser},
        why="wrong values of options end in tracebacks, or in wrong results",
        until="fairseq checks its options",
    ),
    Patch(
        "fairseq.options:parse_args_and_arch",
        WRAP,
        command_line.whole_help,
        why="--help leaves out the options of --arch and --task",
        until="fairseq's --help shows them",
    ),
    Patch(
        "fairseq.options:parse_args_and_arch",
        WRAP,
        precision.without_tpu,
        why="--bf16 means a TPU, and ends in an AttributeError where there is none",
        until="fairseq trains in bfloat16 on GPUs and CPUs",
    ),
    # outermost: what it takes from the checkpoint need not stand on the command line
    Patch(
        "fairseq.options:parse_args_and_arch",
        WRAP,
        validation.completed,
        why="fairseq-validate has to be told what the checkpoint says",
        until="fairseq-validate reads the checkpoint first",
    ),
    Patch(
        "fairseq.logging.progress_bar:progress_bar",
        WRAP,
        progress.logs_once,
        why="every epoch opens --log-file once more, and writes its lines once more",
        until="fairseq opens --log-file once",
    ),
    Patch(
        "fairseq.logging.progress_bar:SimpleProgressBar.__iter__",
        WRAP,
        progress.audible,
        why="a long step looks like one that hangs",
        until="fairseq prints by the clock, too",
    ),
    Patch(
        "fairseq.ngram_repeat_block:NGramRepeatBlock._no_repeat_ngram",
        WRAP,
        search.up_to_now,
        why="--no-repeat-ngram-size compares n-grams with the padding after the last word, and "
        "forbids none",
        until="fairseq reads as many tokens as there are",
    ),
    Patch(
        "fairseq.tasks.fairseq_task:FairseqTask.build_generator",
        WRAP,
        search.quicker,
        why="beam search sorts the scores of whole vocabularies, and reorders what is the same",
        until="fairseq's search is as fast",
    ),
    # --- the process ------------------------------------------------------------------------------
    Patch(
        "sys:excepthook",
        WRAP,
        explaining.reported,
        why="a user's mistake ends in a traceback",
        until="fairseq's commands report mistakes",
    ),
    Setting(
        "warnings:filters",
        notices.without_warnings,
        why="fairseq's use of old interfaces makes other packages warn its users",
        until="fairseq calls Hydra and PyTorch as they are today",
        needed_with="Hydra 1.2, PyTorch 2",
    ),
    Setting(
        "logging:hydra",
        notices.quiet_hydra,
        why="fairseq-generate raises the level of Hydra's log",
        until="fairseq-generate leaves it alone",
    ),
    Setting(
        f"{plugin}:__path__",
        _spelled_as_fairseq_does,
        why="fairseq takes another spelling of an installed plugin's folder for a stranger's",
        until="fairseq compares the folders themselves",
    ),
)

PATCHES = Patches(TABLE, lambda: f"fairseq {version('fairseq-fixed')}")
