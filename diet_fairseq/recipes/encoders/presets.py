"""How an encoder is pretrained and fine-tuned, and where each setting comes from.

TUPE is Ke et al. 2021 (section 4.1, appendix), DIET is Chen et al. 2021 (appendix A). What a paper
leaves open is said beside the setting.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """One way of pretraining; ``batch`` counts samples, ``warmup`` is a part of the updates."""

    size: str
    updates: int
    batch: int
    length: int
    peak_rate: float
    warmup: float
    optimizer: tuple[str, ...]
    per_gpu: int  # samples that fit into a GPU's memory
    save_every: int  # updates
    validate_every: int
    keep: int = -1  # checkpoints; -1: all
    clip_norm: float = 1.0
    blind: bool = True  # scores as in the papers, without a gain and a local start
    positions: int | None = None  # of the model's tables; None: as many as a sample has tokens


ADAM = ("fused_adamw", "--adam-eps", "1e-6", "--adam-betas")
#: DIET names no optimizer; its rate and batch are those of ALBERT (Lan et al. 2020), whose LAMB
#: had this epsilon, weight decay and clipping
LAMB = ("lamb_torch", "--lamb-betas", "(0.9, 0.999)", "--lamb-eps", "1e-6")

PRESETS = {
    "machine": Preset(  # ours: minutes on two cores
        size="tiny",
        updates=1000,
        batch=32,
        length=128,
        peak_rate=3e-3,
        warmup=0.1,
        optimizer=(*ADAM, "(0.9, 0.98)"),
        per_gpu=32,
        save_every=250,
        validate_every=100,
        keep=1,
        blind=False,
    ),
    "tupe": Preset(
        size="base",
        updates=1_000_000,
        batch=256,
        length=512,
        peak_rate=1e-4,
        warmup=0.01,  # 10,000 updates
        optimizer=(*ADAM, "(0.9, 0.999)"),
        per_gpu=16,  # TUPE had 16 GPUs
        save_every=100_000,  # TUPE reports 300,000 and 600,000, too
        validate_every=10_000,
    ),
    "tupe-large": Preset(  # "RoBERTa's hyper-parameters": Liu et al. 2019, table 9, taken literally
        size="large",
        updates=1_000_000,  # TUPE's; RoBERTa had 500,000
        batch=8192,
        length=512,
        peak_rate=4e-4,
        warmup=0.03,  # 30,000 updates
        optimizer=(*ADAM, "(0.9, 0.98)"),
        per_gpu=8,
        save_every=100_000,  # TUPE reports 300,000, too
        validate_every=10_000,
        clip_norm=0.0,
    ),
    "electra": Preset(  # google-research/electra, base; as long as in TUPE's section 4.1
        size="base",
        updates=1_000_000,
        batch=256,
        length=512,
        peak_rate=2e-4,
        warmup=0.01,  # 10,000 updates
        optimizer=(*ADAM, "(0.9, 0.999)"),
        per_gpu=16,
        save_every=100_000,  # TUPE reports 600,000, too
        validate_every=10_000,
    ),
    "diet": Preset(
        size="base",
        updates=500_000,
        batch=4096,
        length=128,
        peak_rate=1.8e-3,
        warmup=0.025,
        optimizer=LAMB,
        per_gpu=64,  # as many tokens as TUPE's 16 of 512
        save_every=20_000,  # DIET, appendix A
        validate_every=20_000,
        positions=512,  # which the parameters in DIET's table 6 come from
    ),
    "diet-multilingual": Preset(  # 100 languages: `prepare --languages --vocabulary 120000`
        size="base",
        updates=125_000,
        batch=4096,
        length=512,
        peak_rate=1.8e-3,
        warmup=0.025,
        optimizer=LAMB,
        per_gpu=16,
        save_every=20_000,  # ours: that of English, which the paper states
        validate_every=20_000,
    ),
}


@dataclass(frozen=True)
class TuningPreset:
    """One way of fine-tuning; a cell is a learning rate, a number of epochs and a seed."""

    rates: tuple[float, ...]
    epochs: tuple[int, ...]
    epochs_of_large: tuple[int, ...]  # of LARGE
    seeds: tuple[int, ...]
    length: int
    warmup: float
    validate_every: int = 0  # updates, besides every epoch's end
    batch: int = 32
    weight_decay: float = 0.01
    grouped: bool = False  # batches of samples that are about as long


#: tasks of 100,000 examples and more
LARGE = ("MNLI", "QQP", "QNLI")

GRIDS = {
    "machine": TuningPreset(  # ours: a small model learns with larger rates
        rates=(3e-4,),
        epochs=(5,),
        epochs_of_large=(2,),
        seeds=(1, 2, 3),
        length=128,
        warmup=0.1,
        grouped=True,
    ),
    "tupe": TuningPreset(  # section 4.1, appendix
        rates=(2e-5, 3e-5, 4e-5, 5e-5),
        epochs=(10,),
        epochs_of_large=(5,),
        seeds=(1, 2, 3, 4, 5),
        length=512,
        warmup=0.06,
    ),
    "diet": TuningPreset(  # appendix A, which says "5 or 10" epochs, and not of which tasks
        rates=(1e-5, 2e-5, 3e-5, 4e-5),
        epochs=(5, 10),
        epochs_of_large=(5, 10),
        seeds=(1, 2, 3, 4, 5),
        length=128,
        warmup=0.1,
        validate_every=3500,
    ),
    "diet-xtreme": TuningPreset(  # appendix A: median of 5 trials
        rates=(1e-5, 2e-5, 3e-5, 4e-5),
        epochs=(3,),
        epochs_of_large=(3,),
        seeds=(1, 2, 3, 4, 5),
        length=512,
        warmup=0.1,
    ),
    "xtreme-xnli": TuningPreset(  # google-research/xtreme, scripts/train_xnli.sh
        rates=(2e-5,),
        epochs=(5,),
        epochs_of_large=(5,),
        seeds=(1,),
        length=128,
        warmup=0.0,
        validate_every=100,
        weight_decay=0.0,
    ),
    "xtreme-questions": TuningPreset(  # google-research/xtreme, scripts/train_qa.sh
        rates=(3e-5,),
        epochs=(3,),
        epochs_of_large=(3,),
        seeds=(1,),
        length=384,
        warmup=0.06,  # 500 updates of SQuAD's 8,300
        weight_decay=1e-4,
    ),
}
#: TUPE's; DIET says nothing, and this is BERT's, too (Devlin et al. 2019, appendix A.3)
FINE_TUNING_ADAM = (*ADAM, "(0.9, 0.999)")
