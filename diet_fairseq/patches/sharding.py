"""``--ddp-backend fully_sharded`` by PyTorch's FSDP2, where fairseq asks for fairscale.

Every process keeps a part of each parameter, of its gradient and of the optimizer's state. The
parameters of a layer are gathered while it computes, those outside of layers (embeddings, shared
position tables) for a whole pass. Checkpoints hold whole tensors, as those of one process: `whole`
gathers them, and `local_part` takes each process's part of them, however many processes there are.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..optim.sharded import local_part, whole
from .patch import intercepts, replaces

NAME = "fully_sharded"
FLAG = f"--ddp-backend {NAME}"
#: attribute of a sharded model: the type that it computes in, if not that of its parameters
COMPUTES_IN = "sharded_computes_in"
#: options that don't go with sharding -> the section of the configuration that has them
REFUSED = {
    **dict.fromkeys(("fp16", "memory_efficient_fp16", "memory_efficient_bf16", "amp"), "common"),
    **dict.fromkeys(("cpu_offload", "use_sharded_state", "zero_sharding"), "distributed_training"),
    "use_bmuf": "optimization",
    "store_ema": "ema",
    "eval_bleu": "task",
    # where there is nothing to save, the first process would not join the others in gathering
    "no_last_checkpoints": "checkpoint",
    # processes would leave out other layers
    **dict.fromkeys(("encoder_layerdrop", "decoder_layerdrop"), "model"),
}


def needs_sharding(cfg: Any) -> bool:
    return bool(cfg.distributed_training.ddp_backend == NAME)


def check(cfg: Any) -> None:
    """Refuse options that don't go with sharding."""
    for name, section in REFUSED.items() if needs_sharding(cfg) else ():
        if getattr(getattr(cfg, section), name, False) not in (False, None, 0, "none"):
            cure = "take --bf16" if section == "common" else "leave it out"
            raise UserError(f"--{name.replace('_', '-')} does not go with {FLAG}: {cure}")


@replaces(
    "fairseq.trainer:Trainer.is_fsdp",
    plugin=f"{FLAG}: fairseq asks for fairscale, and refuses --bf16",
)
def without_fairscale(is_fsdp: Any) -> bool:
    return False


@intercepts(
    "fairseq.trainer:Trainer.__init__",
    plugin=f"{FLAG}: --bf16 would leave no float32 parameters to shard",
)
def keep_float32_parameters(
    init: Callable, self: Any, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any
) -> None:
    """With ``--bf16`` layers compute in it, and parameters stay in float32."""
    several = cfg.distributed_training.distributed_world_size > 1  # fairseq wraps no other model
    if needs_sharding(cfg) and several and cfg.common.bf16:
        setattr(model, COMPUTES_IN, torch.bfloat16)
        cfg.common.bf16 = False
    init(self, cfg, task, model, *args, **kwargs)


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

    ``reshard`` lets go of a layer's parameters between its forward and its backward pass.
    """
    # imported here, as that takes half a second
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = next(model.parameters()).device.type
    everyone: Any = torch.distributed.group.WORLD
    mesh = DeviceMesh.from_group(group or everyone, device)
    precision = MixedPrecisionPolicy(
        param_dtype=getattr(model, COMPUTES_IN, None), reduce_dtype=torch.float32
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
    """Whether `shard` was called on it."""
    return hasattr(module, "reshard")


def _gather_parameters(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name, value in state.items():
        state[name] = whole(value)


def _split_parameters(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for part in module.modules():
        if _is_sharded_model(part):
            part.reshard()  # after an evaluation the parameters may still be whole
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if prefix + name in state:
            state[prefix + name] = local_part(state[prefix + name], parameter)


@intercepts(
    "fairseq.trainer:Trainer._build_optimizer",
    plugin=f"{FLAG}: each process has a part of the optimizer's state",
)
def save_whole_state(build_optimizer: Callable, self: Any) -> None:
    build_optimizer(self)
    if _is_sharded_model(self.model):
        optimizer = self.optimizer.optimizer
        optimizer.register_state_dict_post_hook(_gather_state)
        optimizer.register_load_state_dict_pre_hook(_split_state)


def _gather_state(optimizer: Any, state: dict[str, Any]) -> None:
    state["state"] = {
        number: {name: whole(value) for name, value in values.items()}
        for number, values in state["state"].items()
    }


def _split_state(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    parameters = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    like = dict(zip(numbers, parameters, strict=True))
    values = {
        number: {name: local_part(value, like.get(number)) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": values}


@intercepts(
    "fairseq.trainer:Trainer.clip_grad_norm",
    plugin=f"{FLAG}: the norm of sharded gradients is that of a part",
)
def clip_whole_norm(clip_grad_norm: Callable, self: Any, clip_norm: float) -> Tensor:
    if not _is_sharded_model(self.model):
        return clip_grad_norm(self, clip_norm)
    parameters = [p for p in self.optimizer.params if p.grad is not None]
    norm = whole(torch.nn.utils.get_total_norm([p.grad for p in parameters]))
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
