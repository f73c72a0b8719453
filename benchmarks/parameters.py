"""Parameter counts of the papers' models beside the papers' counts.

    python -m benchmarks.parameters

DIET's Table 6 has BERT-base for 512 positions with pooler, next-sentence head and two segments, and
the vocabularies of the English and the multilingual model. TUPE's tables 3 and 4 have BERT-Large
and ELECTRA-base. The models are built without memory for their parameters.
"""

import logging
from argparse import Namespace
from typing import Any, NamedTuple

#: solved from the paper's rounded counts; its text has "30,000" and 120,000
VOCABULARIES = {"English": 30_522, "multilingual": 120_000}
POSITIONS = 512
#: fairseq's learned table has two rows more than positions
LEARNED = {"max_positions": POSITIONS - 2}


class Row(NamedTuple):
    """A row of Table 6: the paper's counts in millions, and the model's options."""

    name: str
    paper: tuple[float, float]
    arch: str
    options: dict[str, Any] = {}  # noqa: RUF012
    remark: str = ""


TABLE_6 = [
    Row("Devlin et al.", (110.1, 178.9), "bert_learned", LEARNED),
    Row("Shaw et al.", (112.9, 181.7), "bert_shaw",
        {"position_clip": 1023, "position_values": True},
        "the paper does not state its configuration; keys and values, heads sharing, clip 1023 "
        "fit"),
    Row("DIET-REL", (109.9, 178.7), "bert_diet_rel"),
    Row("DIET-REL, share", (109.7, 178.5), "bert_diet_rel", {"position_sharing": "layer"}),
    Row("DIET-ABS, rank 128", (128.6, 197.4), "bert_diet_abs",
        {"position_rank": 128, "position_sharing": "none"}),
    Row("DIET-ABS, rank 128, share", (111.3, 180.1), "bert_diet_abs",
        {"position_rank": 128, "position_sharing": "layer"}),
]  # fmt: skip


class Pretrained(NamedTuple):
    """A model of TUPE's tables 3 and 4, with the size that its paper states."""

    name: str
    arch: str
    vocabulary: int
    stated: str
    options: dict[str, Any]


#: TUPE's models have no segments, and a vocabulary of 32,768
TUPE: dict[str, Any] = {"nsp": False, "segment_scheme": "none"}
#: with positions and segments at the input, like BERT's
CLARK: dict[str, Any] = {**LEARNED, "num_segments": 2}
TABLES_3_AND_4 = [
    Pretrained("BERT-Large", "bert_learned_large", 32_768, "330 M (Ke et al.)", TUPE | LEARNED),
    Pretrained("TUPE-Large", "bert_tupe_r_large", 32_768, "330 M (Ke et al.)", TUPE),
    Pretrained("ELECTRA-small", "electra_learned_small", 30_522, "14 M (Clark et al.)", CLARK),
    Pretrained("ELECTRA-base", "electra_learned_base", 30_522, "110 M (Clark et al.)", CLARK),
    Pretrained("ELECTRA-TUPE, base", "electra_tupe_r_base", 32_768, "", TUPE),
]


def count(arch: str, vocabulary: int, pretraining: bool = False, **options: Any) -> int:
    """The number of parameters of an architecture.

    Args:
        pretraining: whether to count an ELECTRA's generator and discriminator head
        options: fairseq's options, with underscores
    """
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
    from torch._subclasses.fake_tensor import FakeTensorMode

    from diet_fairseq import plugin  # noqa: F401  registers the architectures

    args = Namespace(**{"arch": arch, "nsp": True, "max_positions": POSITIONS} | options)
    ARCH_CONFIG_REGISTRY[arch](args)
    words = Dictionary(extra_special_symbols=["<mask>"])
    for number in range(vocabulary - len(words)):
        words.add_symbol(str(number))
    task: Any = Namespace(source_dictionary=words)
    if pretraining:
        task = MaskedLMTask(MaskedLMConfig(data=""), words)
    # fake tensors have no memory; fairseq's initialisation fails on the meta device
    with FakeTensorMode():
        model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    return sum(parameter.numel() for parameter in model.parameters())


def print_table_6() -> None:
    columns = " | ".join(f"{name} | paper" for name in VOCABULARIES)
    print(f"| BERT-base with | {columns} |\n|{' --- |' * 5}")
    for row in TABLE_6:
        cells = [
            f"{count(row.arch, size, **row.options):,} | {paper:.1f} M"
            for size, paper in zip(VOCABULARIES.values(), row.paper, strict=True)
        ]
        print(f"| {row.name} | {' | '.join(cells)} |")
    for row in TABLE_6:
        if row.remark:
            print(f"\n{row.name}: {row.remark}.")


def print_tables_3_and_4() -> None:
    print(f"| pretrained | parameters | with the generator | stated |\n|{' --- |' * 4}")
    for name, arch, vocabulary, stated, options in TABLES_3_AND_4:
        encoder, whole = f"{count(arch, vocabulary, **options):,}", ""
        if arch.startswith("electra"):
            whole = f"{count(arch, vocabulary, pretraining=True, **options):,}"
        print(f"| {name} | {encoder} | {whole} | {stated} |")


if __name__ == "__main__":
    logging.disable(logging.INFO)
    print_table_6()
    print()
    print_tables_3_and_4()
