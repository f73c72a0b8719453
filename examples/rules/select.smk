# The best of a run's checkpoints by a metric, if the config's `validation` names one.

VALIDATION_FILES = " ".join(
    f"--valid {' '.join(direction)} {shlex.join(files_for('valid', direction))}" for direction in DIRECTIONS
)


rule select:
    """Choose among the checkpoints of a finished training by their translations of the validation set."""
    input:
        average=rules.average.output,  # which describes the folder
        valid=[file for corpus in CORPORA for file in FILES[f"{corpus}valid"]],
    output:
        f"{FOLDER}/runs/{{run}}/best-{{metric}}.pt",
    params:
        folder=lambda w, output: Path(output[0]).parent,
        command=lambda w: METRICS[w.metric],
    resources:
        gpu=min(1, GPUS),
        **needs("metric"),
    threads: THREADS
    log:
        f"{FOLDER}/runs/{{run}}/best-{{metric}}.log",
    shell:
        WITH_GPUS + script("scripts/select_checkpoint.py")
        + f"{{params.folder:q}} {{output:q}} {VALIDATION_FILES} {USER_DIR}"
        " -- {params.command} > {log:q} 2>&1; tail -n 1 {log:q}"
