"""The table of position schemes.

A new scheme needs one file in this folder and one line in `SCHEMES`. The choices of the command
line, the architectures, the error messages and the tests of properties follow from this line.
"""

from .base import AttentionShape, Limit, PositionScheme, check_length
from .cope import Cope
from .deberta import Deberta
from .diet_abs import DietAbs, DietAbsLin
from .distances import Alibi, Cpb, Fire, Kerple, Sandwich
from .fox import Fox
from .input import InputPositions, Learned, Linformer, NoPositions, Sinusoidal
from .layout import Layout
from .options import Option
from .pope import Pope
from .relative import T5, DietRel
from .rope import Rope, Xpos
from .shaw import Shaw
from .transformer_xl import TransformerXL
from .tupe import BertAd, TupeA, TupeFree, TupeR

SCHEMES: dict[str, type[PositionScheme]] = {
    "none": NoPositions,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "shaw": Shaw,
    "transformer_xl": TransformerXL,
    "deberta": Deberta,
    "cope": Cope,
    "t5": T5,
    "tupe_a": TupeA,
    "tupe_r": TupeR,
    "tupe_free": TupeFree,
    "bert_ad": BertAd,
    "rope": Rope,
    "xpos": Xpos,
    "pope": Pope,
    "diet_rel": DietRel,
    "diet_abs": DietAbs,
    "alibi": Alibi,
    "kerple": Kerple,
    "sandwich": Sandwich,
    "fire": Fire,
    "cpb": Cpb,
    "fox": Fox,
    "linformer": Linformer,
    "diet_abs_lin": DietAbsLin,
}

__all__ = [
    "SCHEMES",
    "AttentionShape",
    "InputPositions",
    "Layout",
    "Limit",
    "Option",
    "PositionScheme",
    "check_length",
]
