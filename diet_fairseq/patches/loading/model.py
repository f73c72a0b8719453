"""Compare a checkpoint with the model that it is loaded into."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn import Parameter
from torch.nn.modules import module as modules

from ...errors import chain
from .configuration import Refused
from .plain import shown

#: What PyTorch says of a state that doesn't fit: the names, or a name and both shapes.
_LISTS = {"is not in the checkpoint": "Missing", "is not in the model": "Unexpected"}
_SIZES = re.compile(
    r"size mismatch for (.+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from "
    r"checkpoint, the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)


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


def difference(error: BaseException) -> str | None:
    """Where a checkpoint and the model differ, if that is what ``error`` is about.

    The first parameter by name, the others counted: PyTorch's own list can be pages long.
    """
    texts = (str(cause) for cause in chain(error) if isinstance(cause, RuntimeError))
    text = next((text for text in texts if text.startswith("Error(s) in loading state_dict")), None)
    if text is None:
        return None

    def shape(sizes: str) -> str:
        return sizes.replace(", ", " x ") or "a number"

    parts = []
    unlike = _SIZES.findall(text)
    if unlike:
        name, there, here = unlike[0]
        parts.append(
            f"{name}{_others(len(unlike))} is {shape(there)} in the checkpoint and {shape(here)} "
            "in the model"
        )
    for what, word in _LISTS.items():
        found = re.search(rf"{word} key\(s\) in state_dict: (.*)\. ", text)
        if found:
            names = found[1].split(", ")
            first = names[0].strip('"')
            parts.append(f"{first}{_others(len(names))} {what}")
    return shown(", ".join(parts) or "its parameters are not those")


def _others(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
