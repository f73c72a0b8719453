# The best of a run's checkpoints by a metric, if the config's `validation` names one.

rule select:
    """Choose among the checkpoints of a finished training by their translations of the validation set."""
    input:
        average=rules.average.output,  # which describes the folder
        source=FILES["valid"][0],
        reference=FILES["valid"][1],
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
        + f"{{params.folder:q}} {{output:q}} --source {{input.source:q}} --reference {{input.reference:q}} {USER_DIR}"
        " -- {params.command} > {log:q} 2>&1; tail -n 1 {log:q}"
