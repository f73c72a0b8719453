"""``--ddp-backend fully_sharded`` with PyTorch's FSDP2 instead of fairscale.

Every process keeps a part of each parameter, of its gradient and of the optimizer's state. The
parameters of a layer are gathered while it computes, parameters outside of layers (embeddings,
shared position tables) for a whole pass. Checkpoints hold full tensors, as with one process:
`gather_full_tensor` gathers them, and `shard_like` shards them over any number of processes.
"""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..optim.sharded import gather_full_tensor, shard_like
from .patch import intercepts, replaces

#: modules that fairseq's training program can be
PROGRAMS = ("fairseq_cli.train", "__main__")
NAME = "fully_sharded"
FLAG = f"--ddp-backend {NAME}"
#: attribute of a sharded model with its compute dtype, if that is not its parameters'
COMPUTE_DTYPE = "sharded_compute_dtype"
#: options that can't be combined with sharding -> their section of the configuration
REFUSED_OPTIONS = {
    **dict.fromkeys(("fp16", "memory_efficient_fp16", "memory_efficient_bf16", "amp"), "common"),
    **dict.fromkeys(("cpu_offload", "use_sharded_state", "zero_sharding"), "distributed_training"),
    "use_bmuf": "optimization",
    "store_ema": "ema",
    "eval_bleu": "task",
    # without anything to save, the first process would not join the others in gathering
    "no_last_checkpoints": "checkpoint",
    # each process would drop other layers
    **dict.fromkeys(("encoder_layerdrop", "decoder_layerdrop"), "model"),
}


def replace_fairscale() -> None:
    """Let the training program build its model without fairscale; `shard` shards it later.

    The program imports `fsdp_enable_wrap` by its name, and fairseq-hydra-train has imported the
    program before the plugin. Therefore this is done when the program sets up its task.
    """
    for name in PROGRAMS:
        program: Any = sys.modules.get(name)
        if hasattr(program, "fsdp_enable_wrap"):
            program.fsdp_enable_wrap = nullcontext


def needs_sharding(cfg: Any) -> bool:
    return bool(cfg.distributed_training.ddp_backend == NAME)


def check_options(cfg: Any) -> None:
    """Refuse options that can't be combined with sharding."""
    for name, section in REFUSED_OPTIONS.items() if needs_sharding(cfg) else ():
        if getattr(getattr(cfg, section), name, False) not in (False, None, 0, "none"):
            advice = "use --bf16" if section == "common" else "omit it"
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} can't be combined with {FLAG}: {advice}")


@replaces(
    "fairseq.trainer:Trainer.is_fsdp",
    plugin=f"{FLAG}: fairseq asks for fairscale, and refuses --bf16",
)
def ignore_fairscale(is_fsdp: Any) -> bool:
    return False


def keep_float32_parameters(cfg: Any, model: nn.Module) -> None:
    """With ``--bf16`` let layers compute in bfloat16, and keep the parameters in float32.

    fairseq's trainer would leave no float32 parameters to shard.
    """
    is_wrapped = cfg.distributed_training.distributed_world_size > 1
    if needs_sharding(cfg) and is_wrapped and cfg.common.bf16:
        setattr(model, COMPUTE_DTYPE, torch.bfloat16)
        cfg.common.bf16 = False


@intercepts(
    "fairseq.models:DistributedFairseqModel",
    plugin=f"{FLAG}: fairscale is no longer developed",
)
def shard_by_fsdp2(
    distributed_model: Callable, args: Any, model: nn.Module, process_group: Any, device: Any
) -> nn.Module:
    if args.ddp_backend != NAME:
        return distributed_model(args, model, process_group, device)
    return shard(model.to(device), process_group, not args.no_reshard_after_forward)


def shard(model: nn.Module, group: Any, reshard: bool = True) -> nn.Module:
    """Shard every layer and the rest over the processes of a group.

    ``reshard`` frees a layer's parameters between its forward and its backward pass.
    """
    # imported here, because that takes half a second
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = next(model.parameters()).device.type
    everyone: Any = torch.distributed.group.WORLD
    mesh = DeviceMesh.from_group(group or everyone, device)
    precision = MixedPrecisionPolicy(
        param_dtype=getattr(model, COMPUTE_DTYPE, None), reduce_dtype=torch.float32
    )
    layers = [
        layer
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] == "layers"
        for layer in module
    ]
    for part in (*layers, model):
        fully_shard(part, mesh=mesh, mp_policy=precision, reshard_after_forward=reshard)
    model.register_state_dict_post_hook(_gather_parameters)
    model.register_load_state_dict_pre_hook(_split_parameters)
    return model


def _is_sharded_model(module: nn.Module) -> bool:
    """Whether `shard` was called on the module."""
    return hasattr(module, "reshard")


def _gather_parameters(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name, value in state.items():
        state[name] = gather_full_tensor(value)


def _split_parameters(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for part in module.modules():
        if _is_sharded_model(part):
            part.reshard()  # after an evaluation the parameters may still be whole
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if prefix + name in state:
            state[prefix + name] = shard_like(state[prefix + name], parameter)


@intercepts(
    "fairseq.trainer:Trainer._build_optimizer",
    plugin=f"{FLAG}: each process has a part of the optimizer's state",
)
def save_full_state(build_optimizer: Callable, self: Any) -> None:
    build_optimizer(self)
    if _is_sharded_model(self.model):
        optimizer = self.optimizer.optimizer
        optimizer.register_state_dict_post_hook(_gather_state)
        optimizer.register_load_state_dict_pre_hook(_split_state)


def _gather_state(optimizer: Any, state: dict[str, Any]) -> None:
    state["state"] = {
        number: {name: gather_full_tensor(value) for name, value in values.items()}
        for number, values in state["state"].items()
    }


def _split_state(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    parameters = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    like = dict(zip(numbers, parameters, strict=True))
    values = {
        number: {name: shard_like(value, like.get(number)) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": values}


@intercepts(
    "fairseq.trainer:Trainer.clip_grad_norm",
    plugin=f"{FLAG}: the norm of sharded gradients covers only one process's part",
)
def clip_full_norm(clip_grad_norm: Callable, self: Any, clip_norm: float) -> Tensor:
    if not _is_sharded_model(self.model):
        return clip_grad_norm(self, clip_norm)
    parameters = [p for p in self.optimizer.params if p.grad is not None]
    norm = gather_full_tensor(torch.nn.utils.get_total_norm([p.grad for p in parameters]))
    if clip_norm > 0:
        torch.nn.utils.clip_grads_with_norm_(parameters, clip_norm, norm)
    return norm


@replaces(
    "fairseq.trainer:Trainer.always_call_state_dict_during_save_checkpoint",
    plugin=f"{FLAG}: a checkpoint needs the parts of all processes",
)
def gather_while_saving(before: property) -> property:
    original: Any = before.fget
    return property(lambda self: _is_sharded_model(self.model) or original(self))
