"""The documentation's tables of measurements, from the CSV files of results/.

A comment above each table calls its function here. `make tables` runs cog, which writes what the
calls print; `make lint` refuses pages whose tables differ from the files.
"""

import sys
from pathlib import Path

import cog
from pandas import DataFrame, Series, read_csv

RESULTS = Path(__file__).parents[1] / "results"
sys.path.append(str(RESULTS.with_name("examples") / "scripts"))

from table import difference, spread  # noqa: E402


def read(name: str) -> DataFrame:
    """The cells of results/NAME.csv, as text."""
    return read_csv(RESULTS / f"{name}.csv", dtype=str, keep_default_na=False)


def read_runs(name: str) -> DataFrame:
    """The same without runs that only repeat another one, on another machine."""
    table = read(name)
    return table[~table["scheme"].str.endswith(", again")]


def show(frame: DataFrame, columns: dict[str, str] | None = None) -> None:
    """Print a table as Markdown; ``columns``: heading -> column."""
    if columns is not None:
        frame = frame[[*columns.values()]].set_axis([*columns], axis=1)
    cog.outl()
    for row in (frame.columns, ["---"] * len(frame.columns), *frame.values):
        cog.outl("|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|")
    cog.outl()


# --- README.md, docs/results.md, results/papers.md ------------------------------------------------


def multi30k() -> None:
    names = ["scheme", "BLEU", "chrF", "BLEU after 1,000 updates", "seeds", "parameters"]
    show(read("translation/multi30k")[names])


def adapted() -> None:
    show(read("translation/adapt"))


def tatoeba() -> None:
    scores = read_runs("translation/tatoeba").astype({"BLEU": float, "chrF": float})
    bleu = scores.pivot(index="seed", columns=["test set", "scheme"], values="BLEU")
    chrf = scores.query("`test set` == 'tatoeba'").pivot(
        index="seed", columns="scheme", values="chrF"
    )
    curves = read_runs("translation/tatoeba-curves").query("updates == '2000'")
    losses = curves.pivot(
        index="seed", columns="scheme", values="without label smoothing, nats"
    ).astype(float)
    rows = []
    for scheme in bleu["tatoeba"].mean().sort_values(ascending=False).index:
        pairs = bleu["tatoeba"].loc[bleu["tatoeba", scheme].dropna().index]
        against = "" if scheme == "stock" else difference(pairs[scheme], pairs["stock"])
        row = {"scheme": scheme, "BLEU": spread(pairs[scheme])}
        row |= {"against stock, same seeds": against, "chrF": spread(chrf[scheme].dropna())}
        flickr = bleu["flickr"].get(scheme, Series(dtype=float)).dropna()
        row["BLEU on Multi30k"] = spread(flickr) if len(flickr) else ""
        row["loss, nats"] = spread(losses[scheme].dropna())
        rows.append(row)
    show(DataFrame(rows).replace(r" \(p .*", "", regex=True))


def tatoeba_directions() -> None:
    table = read("translation/tatoeba-directions")
    show(table.pivot(index="model", columns="direction", values="BLEU").reset_index())


def minilm_long(test: str) -> None:
    show(read(f"lengths/minilm-{test}"))


def minilm_distillation() -> None:
    table = read("fine-tuning/minilm-distillation")
    column = "STS-B dev Spearman"
    rows = {}
    for (scheme, seed), checks in table.query("seed != ''").groupby(["scheme", "seed"]):
        steps = dict(zip(checks["step"].astype(int), checks[column], strict=True))
        rows[f"{scheme}, seed {seed}"] = {f"{n} steps": steps[n] for n in sorted(steps)}
    show(DataFrame(rows).T.reset_index(names="copy"))


def minilm_glue() -> None:
    table = read("fine-tuning/minilm-glue")
    table["measure"] = table["task"] + ", " + table["measure"]
    scores = table.pivot(index="model", columns="measure", values="score")
    show(scores.loc[table["model"].unique()].reset_index())


def eltec() -> None:
    losses = read_runs("pretraining/eltec").astype({"held-out loss, nats": float, "updates": int})
    losses = losses[losses["updates"] == losses["updates of the run"].astype(int)]
    ends = dict(list(losses.groupby("updates of the run")))
    # of several learning rates the best
    short = ends["2000"].pivot_table("held-out loss, nats", "seed", "scheme", aggfunc="min")
    long = ends["10000"].set_index("scheme")["held-out loss, nats"]
    rows = []
    for scheme in short.mean().sort_values().index:
        pairs = short.loc[short[scheme].notna()]
        against = difference(pairs[scheme], pairs["learned"]) if scheme != "learned" else ""
        seeds = short[scheme].dropna()
        row = {"scheme": scheme, "2,000 updates": spread(seeds)}
        row |= {"against learned, same seeds": against}
        row["10,000 updates"] = f"{long[scheme]:.3f}" if scheme in long else ""
        rows.append(row)
    show(DataFrame(rows).replace(r" \(p .*", "", regex=True))


def glue() -> None:
    runs = read("fine-tuning/glue-eltec").astype({"value": float})
    medians = runs.groupby(["task", "metric", "encoder"])["value"].median().unstack()
    table = read("fine-tuning/glue-bag-of-words").drop_duplicates("task")  # the metric that selects
    joined = table.join(medians.map("{:.1f}".format), on=["task", "metric"])
    show(joined[["task", "metric", "commonest answer", "bag of words", "learned", "diet_rel"]])


def gain_and_start() -> None:
    losses = read("pretraining/gain-and-start").set_index("row")["400 updates"]
    rows = {"as in the paper": "as in the paper", "gain alone": "blind, gain {}"}
    rows |= {"start alone": "local, gain 1", "both (with a peak of 3)": "local, gain {}"}
    table = [
        {"scheme": scheme}
        | {name: losses[f"{scheme}, {row.format(gain)}"] for name, row in rows.items()}
        for scheme, gain in (("diet_rel", 30), ("diet_abs", 10))
    ]
    show(DataFrame(table))


#: held-out loss of the words' frequencies alone, nats
WORD_FREQUENCY = {"novels": 6.9, "news": 6.2}


def plateau() -> None:
    losses = read("pretraining/novels-peak").query("`400 updates` != ''")
    rows = []
    for (corpus, scheme, peak, machine), runs in losses.groupby(
        ["corpus", "scheme", "peak", "machine"]
    ):
        if len(runs) < 4:
            continue
        last = runs["400 updates"].astype(float)
        quarter, median, three_quarters = last.quantile([0.25, 0.5, 0.75])
        rows.append({
            "text": corpus,
            "scheme": scheme,
            "`--position-peak`": peak or "none",
            "machine": machine,
            "seeds": str(len(last)),
            "seeds that left the plateau": str((last < WORD_FREQUENCY[corpus] - 0.5).sum()),
            "median loss": f"{median:.2f}",
            "quartiles": f"{quarter:.2f} to {three_quarters:.2f}",
        })  # fmt: skip
    show(DataFrame(rows).sort_values(["text", "median loss"], ascending=[False, True]))


def first_attention() -> None:
    show(read("pretraining/first-attention"))


def attention_in_training() -> None:
    table = read("pretraining/novels-attention")
    table = table[table["update"].isin(["0", "50", "100", "200", "400"])]
    columns = {"run": "run", "update": "update", "training loss": "loss"}
    columns |= {"entropy": "entropy", "first offset": "first", "local heads": "local"}
    columns |= {"gradient of the tables": "positions", "clip": "clip"}
    show(table, columns)


def papers() -> None:
    table = read("papers")
    columns = ["row", "paper", "ours", "H100 hours", "note"]
    cog.outl()
    for title, rows in table.groupby("table", sort=False):
        cog.outl(f"## {title}")
        show(rows[[name for name in columns if rows[name].any()]])


# --- docs/using-a-model.md ------------------------------------------------------------------------


def swapped(corpus: str) -> None:
    table = read(f"translation/{corpus}-swapped").replace("sinusoidal", "sinusoidal (no swap)")
    table = table.query("`further updates` != 'none: the model before'")
    updates = sorted(set(table["further updates"]), key=int)
    parts = list(table["test set"].unique())
    table["key"] = table["further updates"] + ", " + table["test set"]
    table = table.pivot(index="positions after the swap", columns="key", values="BLEU")
    table = table.loc[table[f"{updates[-1]}, {parts[0]}"].astype(float).sort_values().index[::-1]]
    columns = {"positions": "positions after the swap"}
    for part in parts:
        columns |= {f"{part}: {n}": f"{n}, {part}" for n in (updates[0], updates[-1])}
    show(table.reset_index(), columns)


# --- docs/performance.md --------------------------------------------------------------------------


def cpu() -> None:
    table = read("performance/bfloat16-cpu").set_index("row")
    table["iwslt"] = read("performance/training-iwslt").set_index("row")["speed against stock"]
    encoders = read("performance/encoders-cpu")
    base = encoders[encoders["shape"] == "base, n = 512"].set_index("pass")
    base.columns = base.columns.str.removesuffix(", speed against stock")
    base["stock"] = "1.00"
    table = table.join(base.T[["training", "inference"]])
    columns = {
        "model": "row",
        "`_tiny`: train": "training: float32 against stock in float32",
        "translate": "generation: float32 against stock in float32",
        "`--bf16`: train": "training: bf16 against stock in float32",
        "`--bf16`: translate": "generation: bf16 against stock in float32",
        "`_iwslt_de_en`: train": "iwslt",
        "BERT-base, n = 512: train": "training",
        "infer": "inference",
    }
    show(table[table["iwslt"].notna()].fillna("").reset_index(), columns)


def gpu() -> None:
    table = read("performance/training-step-h200").set_index(["scheme", "backend", "n"])
    columns: dict[str, dict[tuple[str, str], str]] = {}
    for n in ("512", "2,048"):
        rows = table.xs(n, level="n")
        none = float(rows.loc[("none", "sdpa"), "kernels: ms"])
        kernels = rows["kernels: ms"].astype(float)
        steps = rows["step: median ms"] + ", " + rows["step: shortest ms"]
        columns[f"n = {n}: kernels"] = dict(kernels.map("{:.1f}".format))
        columns["against `none`" + " " * (n != "512")] = dict((kernels / none).map("{:.2f}".format))
        columns[f"n = {n}: step"] = dict(steps)
    chosen = [("none", "sdpa"), ("rope", "sdpa"), ("alibi", "offsets"), ("t5", "offsets")]
    chosen += [("diet_rel", "offsets"), ("tupe_r", "cudnn"), ("diet_abs", "factors")]
    joined = DataFrame(columns).loc[[*chosen, ("shaw", "sdpa")]]
    show(joined.rename_axis(["scheme", "backend"]).reset_index())


def ctranslate2() -> None:
    table = read("performance/ctranslate2")
    ratio = {
        name: table[f"{name}, sentences/s (speed against our search)"].str.extract(r"\((.*)\)")[0]
        for name in ("float32", "int8")
    }
    bleu: DataFrame = table["BLEU: ours, float32, int8"].str.split(", ", expand=True)
    columns: dict[str, Series] = {
        "model": table["model"],
        "float32: speed against our search": ratio["float32"],
        "int8": ratio["int8"],
        "float32: BLEU": bleu[1],
        "int8: BLEU": bleu[2],
    }
    show(DataFrame(columns))
