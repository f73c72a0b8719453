# Memory and time that a scheduler reserves for a step: mem_mb in megabytes, runtime in minutes.
#
# They are no params: no step runs again if they change. `set-resources` of a profile replaces them
# (profiles/slurm). Each of a profile's `retries` reserves more.

import os
import zlib

#: step -> megabytes, megabytes for each million lines of its text, minutes, minutes for each million lines
NEEDS = {
    "clean": (200, 120, 30, 10),
    "clean_documents": (200, 500, 30, 10),
    "start": (8000, 0, 120, 0),
    "learn_subwords": (4000, 0, 240, 0),  # of at most a million lines
    "encode": (1000, 0, 30, 10),
    "preprocess": (3000, 0, 30, 20),
    "train": (0, 200, 24 * 60, 0),  # beside the model: MODEL_MB
    "finetune": (0, 0, 24 * 60, 0),  # likewise
    "average": (3000, 0, 30, 0),
    "translate": (4000, 0, 240, 0),
    "metric": (12000, 0, 240, 0),
}
#: steps that resume when they run again, and need no more time then
RESUMING = ("train", "finetune")
#: size of a model -> megabytes of a process that trains it, measured on the CPU and rounded up
MODEL_MB = {
    "tiny": 2000,
    "small": 4000,
    "iwslt_de_en": 6000,
    "base": 8000,
    "wmt_en_de": 8000,
    "large": 16000,
    "wmt_en_de_big": 16000,
}
#: megabytes of Snakemake, which a scheduler's job runs three times
SNAKEMAKE = 500


def count_lines(path):
    """Estimate the lines of a file by its first megabyte, or count the samples of fairseq-preprocess.

    Raises:
        FileNotFoundError: another step has to make the file; Snakemake asks again afterwards
    """
    if os.path.isdir(path) or not os.path.exists(path):
        # An index, of train.idx or train.en-de.en.idx, has 12 bytes for each sample. Both languages of a pair have the same.
        sizes = {}
        for entry in os.scandir(path):
            if entry.name.startswith("train.") and entry.name.endswith(".idx"):
                sizes[entry.name.split(".")[1]] = entry.stat().st_size
        return sum(sizes.values()) / 12
    with open(path, "rb") as file:
        start = file.read(1 << 20)
    share = len(start) / max(1, os.path.getsize(path))
    if path.endswith(".gz"):
        start = zlib.decompressobj(31).decompress(start)
    return start.count(b"\n") / max(share, 1e-9)


def needs(step, text=lambda input: [], processes=1, model=0):
    """Resources of a step of NEEDS.

    Args:
        text: takes the input of a step, returns the files or folders whose lines count
        processes: of a training, each of which reads the text
        model: megabytes of each process, besides
    """
    mem_mb, mem_mb_per_million, minutes, minutes_per_million = NEEDS[step]

    def amount(constant, per_million, grows=True):
        def resource(wildcards, input, attempt):
            millions = sum(map(count_lines, text(input))) / 1e6
            return round(constant + per_million * millions) * (attempt if grows else 1)

        return resource

    return {
        "mem_mb": amount(SNAKEMAKE + processes * (mem_mb + model), processes * mem_mb_per_million),
        "runtime": amount(minutes, minutes_per_million, step not in RESUMING),
    }
