"""A bound on the size of the models that are built for checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn import Parameter
from torch.nn.modules import module as modules

from .configuration import Refused


@contextmanager
def no_larger_than(size: int) -> Iterator[None]:
    """Within this context, a model that is built, with its buffers, must fit into ``size`` bytes.

    A configuration that asks for 10**8 layers is `Refused` before they take memory or time.
    Every number of a model takes a byte or more of its checkpoint, every parameter a hundred. What
    isn't saved is given four times as much, and room for 16 million numbers.
    """
    numbers, parameters = 4 * size + (1 << 24), 4 * size // 100 + 1000

    def count(_module: Any, name: str, tensor: Any) -> None:
        nonlocal numbers, parameters
        if tensor is None:  # a buffer may be
            return
        numbers -= tensor.numel()
        parameters -= isinstance(tensor, Parameter)
        if numbers < 0 or parameters < 0:
            raise Refused(
                "its configuration asks for a larger model than the file can hold the parameters of"
            )

    hooks = [
        modules.register_module_parameter_registration_hook(count),
        modules.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
