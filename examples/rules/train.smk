# fairseq-train, and the average of a run's last checkpoints.

# model.json, dictionaries and subwords beside the checkpoints: the folder is enough to translate.
DESCRIBE = f"{script('describe.py')} {{params.folder}} {{params.description}} --checkpoint "


rule train:
    """A training that was killed goes on from its last checkpoint: they are no output of the rule."""
    input:
        data=rules.preprocess.output,
        subwords=rules.learn_subwords.output,
    output:
        touch(f"{FOLDER}/runs/{{run}}/trained"),
    params:
        folder=lambda w, output: Path(output[0]).parent,
        description=description,
        plugin=PLUGIN,
        languages=config["languages"],
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
        + DESCRIBE
        + "checkpoint_last.pt; "
        + script("with_gpus.py")
        + "{resources.gpu} fairseq-train {input.data} --user-dir {params.plugin:q}"
        " --source-lang {params.languages[0]} --target-lang {params.languages[1]}"
        " {params.options} {params.batch}"
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
        folder=lambda w, output: Path(output[0]).parent,
        description=description,
        search=SEARCH,  # in model.json: with another one it is written again
        last=config["average"],
    log:
        f"{FOLDER}/runs/{{run}}/average.log",
    shell:
        "diet-fairseq average --inputs {params.folder} --num-update-checkpoints {params.last}"
        " --output {output} > {log} 2>&1; "
        + DESCRIBE
        + "average.pt"
