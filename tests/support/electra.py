"""Tiny ELECTRAs, and batches with masked tokens."""

from argparse import Namespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from diet_fairseq.criterions.diet_electra import ElectraConfig, ElectraLoss

WORDS = Dictionary()
for number in range(20):
    WORDS.add_symbol(f"w{number}")
MASK = WORDS.add_symbol("<mask>")
TASK = MaskedLMTask(MaskedLMConfig(data=""), WORDS)
LIMIT = 24
TINY = {
    "encoder_layers": 2,
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 24,
    "encoder_attention_heads": 2,
    "generator_size": 0.5,
    "max_positions": LIMIT,
}


def build(arch, task=TASK, **options):
    torch.manual_seed(1)
    args = Namespace(**{"arch": arch} | TINY | options)
    ARCH_CONFIG_REGISTRY[arch](args)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def sample_of(lengths=(9, 6), masked=((1, 4, 5), (2,)), left_pad=False):
    """Sentences with masked tokens at these places, padded to one length."""
    chance = torch.Generator().manual_seed(3)
    width = max(lengths)
    original = torch.full((len(lengths), width), WORDS.pad())
    targets = original.clone()
    for row, (length, places) in enumerate(zip(lengths, masked, strict=True)):
        first = width - length if left_pad else 0
        words = torch.randint(4, 24, (length,), generator=chance)
        original[row, first : first + length] = words
        for place in places:
            targets[row, first + place] = words[place]
    source = torch.where(targets.ne(WORDS.pad()), MASK, original)
    return {"net_input": {"src_tokens": source}, "target": targets}, original


def loss_of(model, sample, **options):
    return ElectraLoss(ElectraConfig(**options), TASK)(model, sample)


def enlarged(model):
    """Enlarge the parameters: initial ones hardly tell one token from another."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.2)
    return model
