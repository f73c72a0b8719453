# fairseq-train, and the average of a run's last checkpoints.

# fairseq's own model in the size `tiny`, which it has no name for.
STOCK_TINY = "--dropout 0.3 " + " ".join(
    f"--{side}-layers 4 --{side}-embed-dim 128 --{side}-ffn-embed-dim 256 --{side}-attention-heads 4"
    for side in ("encoder", "decoder")
)


def architecture(run):
    scheme, _, options = SCHEMES[run.label].partition(" ")
    name = "transformer" if scheme == "stock" else f"transformer_{scheme}"
    if scheme == "stock" and run.size == "tiny":
        return f"--arch {name} {STOCK_TINY} {options}"
    return f"--arch {name}{'' if run.size == 'base' else f'_{run.size}'} {options}"


def training_options(wildcards):
    """Every option that changes what is learnt, but for the batch."""
    run = RUNS[wildcards.run]
    interval = min(config["save_interval"], max(1, config["updates"] // config["average"]))
    dropout = "" if config["dropout"] is None else f"--dropout {config['dropout']}"
    return (
        f"{architecture(run)} --share-all-embeddings --seed {run.seed} {dropout}"
        " --optimizer fused_adamw --adam-betas '(0.9, 0.98)' --adam-eps 1e-9"
        f" --lr {config['learning_rate']} --lr-scheduler inverse_sqrt --warmup-updates {config['warmup']}"
        " --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1"
        f" --max-update {config['updates']} --save-interval-updates {interval}"
        f" --keep-interval-updates {config['average']} --no-epoch-checkpoints"
        f" --skip-invalid-size-inputs-valid-test {config['options']}"
    )


def batch_options(wildcards, resources):
    """The same batch on any number of GPUs: what does not fit at once is accumulated."""
    gpus = max(1, resources.gpu)
    steps = -(-config["batch"] // (config["tokens_per_gpu"] * gpus))
    options = f"--max-tokens {config['batch'] // (steps * gpus)} --update-freq {steps}"
    if not resources.gpu:
        return f"{options} --cpu"
    # Resuming on several processes fails without the second option.
    return f"{options} --distributed-world-size {gpus} --load-checkpoint-on-all-dp-ranks"


# model.json, dictionaries and subwords beside the checkpoints: the folder is enough to translate.
DESCRIBE = (
    "python {SCRIPTS}/describe.py {params.folder} --languages {SOURCE} {TARGET}"
    " --subwords {config[subwords]} {input.subwords} --data {input.data} --beam {config[beam]}"
    " --length-penalty {config[length_penalty]} --penalty {config[penalty]} --checkpoint "
)


rule train:
    """A training that was killed goes on from its last checkpoint: they are no output of the rule."""
    input:
        data=rules.preprocess.output,
        subwords=rules.learn_subwords.output,
    output:
        touch(f"{FOLDER}/runs/{{run}}/trained"),
    params:
        folder=f"{FOLDER}/runs/{{run}}",
        options=training_options,
        batch=batch_options,
    resources:
        gpu=config["gpus"],
    threads: config["threads"]
    log:
        f"{FOLDER}/runs/{{run}}/fairseq-train.log",
    shell:
        "[ -e {params.folder}/SHA256SUMS ] || cp {input.data}/SHA256SUMS {params.folder}; "
        "cmp {input.data}/SHA256SUMS {params.folder}/SHA256SUMS || "
        "{{ echo 'error: {params.folder} was trained on other text: remove it, or name another folder' >&2; exit 1; }}; "
        + DESCRIBE + "checkpoint_last.pt; "
        "python {SCRIPTS}/with_gpus.py {resources.gpu} fairseq-train {input.data} --user-dir {PLUGIN}"
        " --source-lang {SOURCE} --target-lang {TARGET} {params.options} {params.batch}"
        " --save-dir {params.folder} --log-format json --log-interval 100"
        " --log-file {params.folder}/train.log > {log} 2>&1"


rule average:
    input:
        trained=rules.train.output,
        data=rules.preprocess.output,
        subwords=rules.learn_subwords.output,
    output:
        f"{FOLDER}/runs/{{run}}/average.pt",
    params:
        folder=f"{FOLDER}/runs/{{run}}",
        last=config["average"],
        **settings_of("beam", "length_penalty", "penalty"),  # which model.json names
    log:
        f"{FOLDER}/runs/{{run}}/average.log",
    shell:
        "diet-fairseq average --inputs {params.folder} --num-update-checkpoints {params.last}"
        " --output {output} > {log} 2>&1; " + DESCRIBE + "average.pt"
