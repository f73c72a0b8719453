"""fairseq's commands search with our models by `QuickBeamSearch`."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..beam_search import QuickBeamSearch
from ..stack.decoder import PositionalDecoder


def search_quickly(build_generator: Callable) -> Callable:
    """``FairseqTask.build_generator`` that searches by `QuickBeamSearch` with a model of ours."""

    @wraps(build_generator)
    def wrapper(
        self: Any,
        models: Any,
        args: Any,
        seq_gen_cls: Any = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        ours = all(
            isinstance(getattr(model, "decoder", None), PositionalDecoder) for model in models
        )
        if ours and seq_gen_cls is None and not getattr(args, "print_alignment", False):
            seq_gen_cls = QuickBeamSearch
        return build_generator(self, models, args, seq_gen_cls, *rest, **options)

    return wrapper
