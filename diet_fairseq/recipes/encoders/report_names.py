"""What DIET's tables and TUPE's call a model, so that their rows stand beside ours."""

from typing import Any


def names_in_papers(model: dict[str, Any]) -> tuple[str, ...]:
    """What DIET's tables and TUPE's call the model of a checkpoint, where they have it."""
    tupe = name_in_tupe(model)
    if str(model.get("arch")).startswith("electra_"):
        return tupe
    return (key(as_in_papers(model)), *tupe)


def name_in_tupe(model: dict[str, Any]) -> tuple[str, ...]:
    """As in TUPE's tables 1, 3 and 4; () where they don't have it.

    Models that are smaller than base count as base.
    """
    scheme, added = model["position_scheme"], model.get("position_input") or "none"
    arch = str(model.get("arch"))
    kind = "electra" if arch.startswith("electra_") else ""
    kind = kind or ("large" if arch.endswith("_large") else "base")
    if scheme == "tupe_a" and model.get("position_untie_cls") == "no":
        scheme = "tupe_a, [CLS] tied"
    usual = "learned" if scheme == "learned" else "none"
    found = NAMES_IN_TUPE[kind].get(f"{scheme} + {added}" if added != usual else scheme)
    return (found,) if found else ()


#: kind of model -> scheme, with what is added to the input -> name
NAMES_IN_TUPE = {
    "base": {
        "learned": "bert_a",
        "t5 + learned": "bert_r",
        "bert_ad": "bert_a_d",
        "tupe_a": "tupe_a",
        "tupe_r": "tupe_r",
        "tupe_a, [CLS] tied": "tupe_a_tied_cls",
    },
    "large": {"learned": "bert_large", "tupe_r": "tupe_r_large"},
    "electra": {"learned": "electra_base", "tupe_r": "electra_tupe"},
}


def as_in_papers(model: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's model in the words of DIET's tables in paper_tables.json."""
    scheme, sharing = model["position_scheme"], model["position_sharing"]
    usual = {"diet_rel": "none", "diet_abs": "none"}.get(scheme, sharing)  # not printed there
    return {
        "model": {"learned": "bert", "tupe_a": "tupe"}.get(scheme, scheme or "stock"),
        "rank": model["position_rank"],
        "sharing": None if sharing == usual else sharing,
        "segment": model["segment_scheme"],
    }


def key(row: dict[str, Any]) -> str:
    """What a row of DIET's tables is found by: its name, less what the paper doesn't vary.

    That is Linformer's projection length, 32 of 128 positions in GLUE and 256 of 512 in XTREME; and
    of diet_abs_lin the rank, which isn't printed.
    """
    left_out = {"projection": None}
    if row["model"] == "diet_abs_lin":
        left_out["rank"] = None
    return paper_name(row | left_out)


def paper_name(row: dict[str, Any]) -> str:
    """The name of a table's row: what distinguishes it from the others."""
    parts = [row["model"]]
    parts += [f"{name} {row[name]}" for name in ("rank", "projection") if row.get(name)]
    parts += [f"shared {row['sharing']}"] if row.get("sharing") else []
    parts += [f"segments {row['segment']}"] if row.get("segment") else []
    parts += [f"{row['steps']} updates"] if row.get("steps") else []
    return ", ".join(parts)
