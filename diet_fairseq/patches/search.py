"""fairseq's commands search with our models by `QuickBeamSearch`."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..beam_search import QuickBeamSearch
from ..stack.decoder import PositionalDecoder
from .patch import replaces


@replaces(
    "fairseq.tasks.fairseq_task:FairseqTask.build_generator",
    ours="beam search sorts the scores of whole vocabularies, and reorders identical caches",
)
def search_quickly(build_generator: Callable) -> Callable:
    @wraps(build_generator)
    def wrapper(
        self: Any, models: Any, args: Any, seq_gen_cls: Any = None, *rest: Any, **options: Any
    ) -> Any:
        decoders = [getattr(model, "decoder", None) for model in models]
        ours = all(isinstance(decoder, PositionalDecoder) for decoder in decoders)
        if ours and seq_gen_cls is None and not getattr(args, "print_alignment", False):
            seq_gen_cls = QuickBeamSearch
        return build_generator(self, models, args, seq_gen_cls, *rest, **options)

    return wrapper
