"""Every attribute that importing the plugin changes: ``diet-fairseq patches`` prints this table."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from .. import errors
from . import (
    archives,
    batches,
    command_line,
    loading,
    position_options,
    precision,
    saving,
    search,
    sharding,
    training,
)
from .patch import Patch, Patches, Reason


def safety(why: str, until: str) -> Reason:
    return Reason("safety", why, until)


def today(why: str, until: str, needed_with: str = "fairseq 0.12") -> Reason:
    return Reason("today", why, until, needed_with)


def data(why: str, until: str) -> Reason:
    return Reason("data", why, until)


def ours(why: str, until: str) -> Reason:
    return Reason("ours", why, until)


def patch(target: str, replace: Callable[[Any], Any], *reasons: Reason) -> Patch:
    return Patch(target, replace, reasons)


FSDP2 = "fairseq shards by PyTorch's fully_shard"

TABLE: tuple[Patch, ...] = (
    # --- loading ----------------------------------------------------------------------------------
    patch(
        "fairseq.checkpoint_utils:torch",
        loading.with_safe_load,
        safety(
            "a checkpoint can run any program, and names files that fairseq opens or downloads",
            "fairseq passes weights_only, and its checkpoints hold plain containers only",
        ),
        today(
            "fairseq's own checkpoints don't load: they hold options as argparse.Namespace",
            "fairseq's checkpoints hold plain containers only",
            "PyTorch 2.6",
        ),
    ),
    patch(
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        loading.check_checkpoint,
        safety(
            "a pipe or a device in the place of a checkpoint is opened, and counts that are no "
            "numbers end a run later",
            "fairseq checks what it loads",
        ),
        ours(
            "a run or a warm start takes parameters of positions that mean something else to it",
            "fairseq compares a checkpoint's options with the model's",
        ),
    ),
    patch(
        "fairseq.checkpoint_utils:load_model_ensemble_and_task",
        loading.bound_model_size,
        safety(
            "a small checkpoint can ask for a model that takes all memory",
            "fairseq compares sizes before it builds a model",
        ),
    ),
    patch(
        "fairseq.file_utils:tarfile",
        archives.with_checked_archives,
        safety(
            "an archive of a model writes wherever its names and links lead",
            "fairseq unpacks with a filter (PEP 706), and no links",
        ),
    ),
    patch(
        "fairseq.trainer:Trainer.load_checkpoint",
        position_options.load_for_model,
        safety(
            "a pipe, a device or a folder in the place of a checkpoint is silently ignored",
            "fairseq refuses --restore-file if it is no regular file",
        ),
        ours(
            "a model does not know that --finetune-from-model loads it",
            "fairseq tells the model the purpose of a load",
        ),
    ),
    # --- saving -----------------------------------------------------------------------------------
    patch(
        "fairseq.checkpoint_utils:torch_persistent_save",
        saving.save_completely,
        data(
            "a run that is killed while it saves, or a crash of the system, cuts a checkpoint",
            "fairseq syncs and renames every file that it writes",
        ),
    ),
    patch(
        "fairseq.checkpoint_utils:PathManager",
        saving.with_complete_copies,
        data(
            "a run that is killed while it copies checkpoint_last.pt cuts it",
            "fairseq syncs and renames every file that it writes",
        ),
    ),
    patch(
        "fairseq.checkpoint_utils:save_checkpoint",
        saving.save_updates_at_epoch_ends,
        data(
            "--no-epoch-checkpoints --save-interval-updates N saves nothing at an epoch's end",
            "fairseq saves there",
        ),
    ),
    # --- resuming ---------------------------------------------------------------------------------
    patch(
        "fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.state_dict",
        precision.save_exact_parameters,
        data(
            "a run in half precision that is resumed goes on from rounded parameters",
            "fairseq saves the parameters in float32",
        ),
    ),
    patch(
        "fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.load_state_dict",
        precision.load_exact_parameters,
        data(
            "a run in half precision that is resumed goes on from rounded parameters",
            "fairseq saves the parameters in float32",
        ),
    ),
    patch(
        "fairseq.tasks.fairseq_task:FairseqTask.get_batch_iterator",
        batches.batches_of_first_epoch,
        data(
            "a run that is resumed within an epoch sees sentences twice, and others never",
            "fairseq resumes with the batches that it stopped with",
        ),
    ),
    patch(
        "fairseq.data.iterators:EpochBatchIterator.state_dict",
        batches.save_epoch_size,
        data(
            "a run that is resumed on other GPUs sees sentences twice, and others never",
            "fairseq saves how many processes share an epoch",
        ),
    ),
    patch(
        "fairseq.data.iterators:EpochBatchIterator.load_state_dict",
        batches.resume_at_same_share,
        data(
            "a run that is resumed on other GPUs sees sentences twice, and others never",
            "fairseq saves how many processes share an epoch",
        ),
    ),
    patch(
        "fairseq.data.iterators:GroupedIterator.__init__",
        batches.group_whole_rest,
        data(
            "resumed with another --update-freq, an epoch is trained once more",
            "fairseq counts the groups that remain",
        ),
    ),
    # --- data -------------------------------------------------------------------------------------
    patch(
        "fairseq.data.data_utils:batch_by_size",
        batches.keep_last_batch,
        data(
            "the last batch is dropped if its size is not a multiple of 8, in test sets, too",
            "fairseq translates, scores and trains on all sentences",
        ),
    ),
    patch(
        "fairseq.data.iterators:EpochBatchIterator.__init__",
        batches.restart_workers,
        data(
            "dynamic masking masks the same tokens in every epoch",
            "fairseq tells its data loader's processes of a new epoch",
        ),
    ),
    patch(
        "fairseq.data.iterators:BufferedIterator._create_consumer",
        batches.end_with_iterator,
        today(
            "--num-workers 0 aborts after a run that ends within an epoch (status 134), and a "
            "validation cut by --max-valid-steps leaves a process and a thread behind",
            "fairseq ends the thread of an iterator that nobody reads",
            "PyTorch 2",
        ),
    ),
    *(
        patch(
            f"fairseq.data.{module}:np",
            batches.with_compat,
            today(
                "--sample-break-mode eos and bucketed lengths end in an AttributeError",
                "fairseq doesn't use np.compat",
                "NumPy 2",
            ),
        )
        for module in ("language_pair_dataset", "token_block_dataset")
    ),
    patch(
        "fairseq.data.data_utils:np",
        batches.with_interpolation,
        today(
            "--num-batch-buckets ends in a TypeError",
            "fairseq passes method to np.percentile",
            "NumPy 2",
        ),
    ),
    # --- commands ---------------------------------------------------------------------------------
    patch(
        "fairseq.options:parse_args_and_arch",
        command_line.parse_options,
        today(
            "--bf16 means a TPU, and ends in an AttributeError where there is none",
            "fairseq trains in bfloat16 on GPUs and CPUs",
        ),
        ours(
            "--help leaves out the options of our architectures",
            "fairseq's --help shows the options of --arch",
        ),
    ),
    patch(
        "fairseq.distributed.utils:call_main",
        training.run_training,
        data(
            "two trainings that write to one folder spoil each other's checkpoints, and a "
            "finished run that is started again makes one more update",
            "fairseq keeps a second training out of a folder, and looks at --max-update before "
            "an update",
        ),
        ours(
            "masked_lm_nsp's model, task and criterion need each other, and fully_sharded "
            "builds its model without fairscale",
            FSDP2,
        ),
    ),
    patch(
        "fairseq.models.fairseq_model:BaseFairseqModel.prepare_for_inference_",
        precision.use_bf16,
        data(
            "commands that translate and score ignore --bf16 in silence",
            "fairseq-generate follows --bf16",
        ),
    ),
    patch(
        "fairseq.tasks.fairseq_task:FairseqTask.build_generator",
        search.search_quickly,
        ours(
            "beam search sorts the scores of whole vocabularies, and reorders identical caches",
            "fairseq's search is as fast",
        ),
    ),
    patch(
        "fairseq.trainer:Trainer.get_train_iterator",
        training.tell_epoch_size,
        ours(
            "linear_ratio does not know how many batches an epoch has",
            "fairseq tells a schedule",
        ),
    ),
    patch(
        "sys:excepthook",
        errors.report_user_errors,
        ours("an error of the plugin ends in a traceback", "fairseq's commands report mistakes"),
    ),
    # --- several processes ------------------------------------------------------------------------
    patch(
        "fairseq.distributed.utils:torch",
        loading.with_broadcast_load,
        today(
            "a run on several processes can't be resumed: weights_only refuses the broadcast",
            "fairseq broadcasts plain containers",
            "PyTorch 2.6",
        ),
    ),
    patch(
        "fairseq.distributed.utils:broadcast_object",
        loading.broadcast_plain_data,
        today(
            "a run on several processes can't be resumed: weights_only refuses the broadcast",
            "fairseq broadcasts plain containers",
            "PyTorch 2.6",
        ),
    ),
    *(
        patch(target, replace, ours(f"--ddp-backend fully_sharded: {why}", FSDP2))
        for target, replace, why in (
            (
                "fairseq.trainer:Trainer.is_fsdp",
                sharding.without_fairscale,
                "fairseq asks for fairscale, and refuses --bf16",
            ),
            (
                "fairseq.trainer:Trainer.__init__",
                sharding.keep_float32_parameters,
                "--bf16 would leave no float32 parameters to shard",
            ),
            (
                "fairseq.models:DistributedFairseqModel",
                sharding.shard_by_fsdp2,
                "fairscale is no longer developed",
            ),
            (
                "fairseq.trainer:Trainer._build_optimizer",
                sharding.save_whole_state,
                "each process has a part of the optimizer's state",
            ),
            (
                "fairseq.trainer:Trainer.clip_grad_norm",
                sharding.clip_whole_norm,
                "the norm of sharded gradients is that of a part",
            ),
            (
                "fairseq.trainer:Trainer.always_call_state_dict_during_save_checkpoint",
                sharding.gather_while_saving,
                "a checkpoint needs the parts of all processes",
            ),
        )
    ),
)

PATCHES = Patches(TABLE, lambda: f"fairseq {version('fairseq-fixed')}")
