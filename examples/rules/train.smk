# fairseq-train, and the average of a run's last checkpoints.

# model.json, dictionaries and subwords beside the checkpoints: the folder is enough to translate.
# The training text is no parameter: a run of an earlier version is not trained again.
DESCRIBE = (
    f"{script('scripts/describe.py')} {{params.folder:q}} {{params.description}}"
    + "".join(f" --train {shlex.join(files)}" for files in zip(sources_of("clean"), sources_of("encoded")))
    + " --checkpoint "
)

if MULTILINGUAL:

    rule shares:
        """The share of each direction in the sampled text, which is printed before each training."""
        localrule: True
        input:
            texts_of("train"),
        output:
            f"{FOLDER}/clean/shares.txt",
        params:
            **settings_of("temperature"),
            directions=[*map(name_of, DIRECTIONS)],
            files=sources_of("clean"),
        log:
            f"{FOLDER}/logs/shares.log",
        shell:
            script("scripts/shares.py")
            + "{params.temperature} --directions {params.directions:q} --files {params.files:q} > {output:q} 2> {log:q}"


rule train:
    """Train. Checkpoints are not outputs of this rule, so that a killed training can resume."""
    input:
        data=rules.preprocess.output,
        subwords=SUBWORDS,
        **({"shares": rules.shares.output} if MULTILINGUAL else {}),
    output:
        touch(f"{FOLDER}/runs/{{run}}/trained"),
    params:
        folder=lambda w, output: Path(output[0]).parent,
        description=description,
        options=training_options,
    resources:
        gpu=GPUS,
        **needs("train", lambda input: input.data, max(1, GPUS), TRAINED_MB),
    threads: THREADS
    log:
        f"{FOLDER}/runs/{{run}}/fairseq-train.log",
    shell:
        f"( {CHECK_TEXT}{DESCRIBE}checkpoint_last.pt ) 2>&1 | tee {{log:q}}; "
        + fairseq_train(
            f"--batch {config['batch']} --capacity {config['tokens_per_gpu']}"
            f" --updates {config['updates']} --first-checkpoint {FIRST_CHECKPOINT}"
            + (f" --start {shlex.quote(START_FOLDER)}/description.txt" if START else "")
            + " --shares {input.shares:q}" * MULTILINGUAL
        )


rule average:
    input:
        trained=rules.train.output,
        data=rules.preprocess.output,
        subwords=SUBWORDS,
    output:
        f"{FOLDER}/runs/{{run}}/average.pt",
    params:
        folder=lambda w, output: Path(output[0]).parent,
        description=description,
        search=SEARCH,  # in model.json: with another one it is written again
        last=config["average"],
    resources:
        **needs("average"),
    log:
        f"{FOLDER}/runs/{{run}}/average.log",
    shell:
        "diet-fairseq average --inputs {params.folder:q} --num-update-checkpoints {params.last:q}"
        " --output {output:q} > {log:q} 2>&1; "
        + DESCRIBE
        + "average.pt"
