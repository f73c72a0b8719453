"""``--ddp-backend fully_sharded`` by PyTorch's FSDP2, where fairseq asks for fairscale.

Every process keeps a part of each parameter, of its gradient and of the optimizer's state. The
parameters of a layer are gathered while it computes, those outside of layers (embeddings, shared
position tables) for a whole pass. Checkpoints hold whole tensors, as those of one process: `whole`
gathers them, and `parted` takes each process's part of them, however many processes there are.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..optim.sharded import parted, whole

NAME = "fully_sharded"
#: attribute of a sharded model: the type that it computes in, if not that of its parameters
COMPUTES_IN = "sharded_computes_in"


def is_sharded(cfg: Any) -> bool:
    return bool(cfg.distributed_training.ddp_backend == NAME)


def check(cfg: Any) -> None:
    """Refuse options that don't go with sharding."""
    if not is_sharded(cfg):
        return
    wanted, common = cfg.distributed_training, cfg.common
    for flag, given, cure in (
        ("--fp16", common.fp16, "take --bf16, which needs no loss scaling"),
        ("--memory-efficient-fp16", common.memory_efficient_fp16, "take --bf16"),
        ("--memory-efficient-bf16", common.memory_efficient_bf16, "take --bf16"),
        ("--amp", common.amp, "take --bf16"),
        ("--cpu-offload", wanted.cpu_offload, "leave it out"),
        ("--use-sharded-state", wanted.use_sharded_state, "leave it out: checkpoints are whole"),
        ("--zero-sharding", wanted.zero_sharding != "none", "leave it out: it is built in"),
        ("--use-bmuf", cfg.optimization.use_bmuf, "leave it out"),
        ("--store-ema", getattr(cfg.ema, "store_ema", False), "leave it out"),
        ("--eval-bleu", getattr(cfg.task, "eval_bleu", False),
         "evaluate checkpoints by fairseq-generate"),
        ("--encoder-layerdrop", getattr(cfg.model, "encoder_layerdrop", 0),
         "leave it out: processes would leave out other layers"),
        ("--decoder-layerdrop", getattr(cfg.model, "decoder_layerdrop", 0),
         "leave it out: processes would leave out other layers"),
    ):  # fmt: skip
        if given:
            raise UserError(f"{flag} does not go with --ddp-backend {NAME}: {cure}")


def without_fairscale(is_fsdp: Any) -> bool:
    """``Trainer.is_fsdp``, which is about fairscale's sharding: never, as PyTorch's is used."""
    return False


def keep_float32_parameters(init: Callable) -> Callable:
    """``Trainer.__init__``: with ``--bf16`` layers compute in it, parameters stay in float32."""

    @wraps(init)
    def wrapper(self: Any, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        if is_sharded(cfg) and cfg.common.bf16:
            setattr(model, COMPUTES_IN, torch.bfloat16)
            cfg.common.bf16 = False
        init(self, cfg, task, model, *args, **kwargs)

    return wrapper


def shard_by_fsdp2(distributed_model: Callable) -> Callable:
    """``DistributedFairseqModel``: the model itself, sharded."""

    @wraps(distributed_model)
    def wrapper(args: Any, model: nn.Module, process_group: Any, device: Any) -> nn.Module:
        if args.ddp_backend != NAME:
            return distributed_model(args, model, process_group, device)
        return shard(model.to(device), process_group, not args.no_reshard_after_forward)

    return wrapper


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
    for layer in layers_of(model):
        fully_shard(layer, mesh=mesh, mp_policy=precision, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, mp_policy=precision, reshard_after_forward=reshard)
    model.register_state_dict_post_hook(_whole_parameters)
    model.register_load_state_dict_pre_hook(_parted_parameters)
    return model


def _shards(module: nn.Module) -> bool:
    """Whether `shard` was called on it."""
    return hasattr(module, "reshard")


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Those of all encoders and decoders."""
    return [
        layer
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] == "layers"
        for layer in module
    ]


def _whole_parameters(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name, value in state.items():
        state[name] = whole(value)


def _parted_parameters(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for part in module.modules():
        if _shards(part):
            part.reshard()  # after an evaluation the parameters may still be whole
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if prefix + name in state:
            state[prefix + name] = parted(state[prefix + name], parameter)


def save_whole_state(build_optimizer: Callable) -> Callable:
    """``Trainer._build_optimizer``: the optimizer's state in checkpoints is whole, too."""

    @wraps(build_optimizer)
    def wrapper(self: Any) -> None:
        build_optimizer(self)
        if _shards(self.model):
            optimizer = self.optimizer.optimizer
            optimizer.register_state_dict_post_hook(_whole_state)
            optimizer.register_load_state_dict_pre_hook(_parted_state)

    return wrapper


def _whole_state(optimizer: Any, state: dict[str, Any]) -> None:
    state["state"] = {
        number: {name: whole(value) for name, value in values.items()}
        for number, values in state["state"].items()
    }


def _parted_state(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    parameters = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    like = dict(zip(numbers, parameters, strict=True))
    values = {
        number: {name: parted(value, like.get(number)) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": values}


def clip_whole_norm(clip_grad_norm: Callable) -> Callable:
    """``Trainer.clip_grad_norm``: the norm is of whole gradients."""

    @wraps(clip_grad_norm)
    def wrapper(self: Any, clip_norm: float) -> Tensor:
        if not _shards(self.model):
            return clip_grad_norm(self, clip_norm)
        parameters = [p for p in self.optimizer.params if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        norm = whole(norm)
        if clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(parameters, clip_norm, norm)
        return norm

    return wrapper


def gather_while_saving(before: property) -> property:
    """``Trainer.always_call_state_dict_during_save_checkpoint``: all processes gather."""
    original: Any = before.fget
    return property(lambda self: _shards(self.model) or original(self))
