# The vocabulary and subwords of the model that trainings start from, and its own results.


# `diet-fairseq export hf --original` needs this folder beside the checkpoint.
COPY_ORIGINAL = (
    "[ ! -d {input.start:q}/data-bin/original ] || cp -rT {input.start:q}/data-bin/original {params.folder:q}/original; "
)


rule import_start:
    """Import the model.

    The path is no parameter and the folder no input, so that another path of the same model, whose digest is in the
    output's name, trains nothing again.
    """
    output:
        directory(START),
    resources:
        **needs("average"),
    log:
        f"{FOLDER}/logs/start-{START_DIGEST}.log",
    shell:
        script("roberta/start_encoder.py") + f'"$DIET_FAIRSEQ_START" {{output:q}} {USER_DIR} 2>&1 | tee {{log:q}}'


rule copy_subwords:
    """A run has its subword model in a folder above it."""
    localrule: True
    input:
        START,
    output:
        directory(f"{FOLDER}/subwords"),
    shell:
        'aside={output:q}.$$.tmp; cp -r {input:q}/subwords "$aside"; ' + RENAME


rule encode:
    input:
        text=f"{FOLDER}/clean/{{split}}",
        model=START,
    output:
        f"{FOLDER}/encoded/{{split}}",
    params:
        **settings_of("language"),
        longest=config["length"] - 2,  # a sample also has <s> and </s>
    resources:
        **needs("encode", lambda input: [input.text]),
    threads: 4
    log:
        f"{FOLDER}/logs/encode-{{split}}.log",
    shell:
        script("scripts/encode.py")
        + "checkpoint {input.model:q}/model.pt --text {params.language:q} {input.text:q} {output:q}"
        " --split --longest {params.longest:q} --workers {threads} 2>&1 | tee {log:q}"


rule preprocess:
    input:
        train=f"{FOLDER}/encoded/train",
        valid=f"{FOLDER}/encoded/valid",
        start=START,
        subwords=rules.copy_subwords.output,  # unused here: commands look for them beside data-bin
    output:
        directory(f"{FOLDER}/data-bin"),
    resources:
        **needs("preprocess", lambda input: [input.train]),
    threads: 4
    log:
        f"{FOLDER}/logs/preprocess.log",
    shell:
        "aside={output:q}.$$.tmp; fairseq-preprocess --only-source --trainpref {input.train:q}"
        " --validpref {input.valid:q} --srcdict {input.start:q}/data-bin/dict.txt --destdir \"$aside\""
        " --workers {threads} > {log:q} 2>&1; cp {input.start:q}/data-bin/made-from.json \"$aside\"; "
        f"{BINARISED}"


rule measure_start:
    """The loss on held-out text of the model as it was: of a training that changes nothing, with the same masks."""
    input:
        data=rules.preprocess.output,
        start=START,
    output:
        f"{FOLDER}/results/as_it_was.log",
    params:
        options=f"{start_options('start')} {OBJECTIVES['masked_lm']} --tokens-per-sample {config['length']} {OPTIONS}"
        f" --optimizer adam --lr 0 --max-update 1 --no-save --seed {config['pretraining_seeds'][0]}",
    resources:
        gpu=min(1, GPUS),
        **needs("finetune", model=MODEL),
    threads: THREADS
    log:
        f"{FOLDER}/logs/measure-start.log",
    shell:
        # A new head for masked words has learnt nothing, so there is no loss to compare.
        "[ ! -e {input.start:q}/new-head ] || {{ touch {output:q}; exit; }}; "
        f"{WITH_GPUS}fairseq-train {{input.data:q}} {USER_DIR} {{params.options}} --log-format json --log-file {{log:q}}.json"
        f" --batch-size {min(config['batch'], config['samples_per_gpu'])}{' --cpu' * (not GPUS)} > {{log:q}} 2>&1; "
        "mv {log:q}.json {output:q}"


rule export:
    """Export a model to transformers, for fine-tuning."""
    input:
        trained=lambda w: f"{FOLDER}/runs/{MODELS[w.model][0]}/trained" if MODELS[w.model][0] else [],
        start=START,
    output:
        directory(f"{FOLDER}/hf/{{model}}"),
    params:
        checkpoint=lambda w: f"{FOLDER}/runs/{MODELS[w.model][0]}/{MODELS[w.model][1]}" if MODELS[w.model][0] else f"{START}/model.pt",
    resources:
        **needs("average"),
    log:
        f"{FOLDER}/logs/export-{{model}}.log",
    shell:
        "diet-fairseq export hf {params.checkpoint:q} {output:q} --data {input.start:q}/data-bin"
        f" {USER_DIR} > {{log:q}} 2>&1"


rule adaptation_table:
    """One row for each model, the model as it was first: its loss on held-out text, and its results on tasks."""
    localrule: True
    input:
        pretraining=f"{FOLDER}/results/pretraining.csv",
        tables=[f"{FOLDER}/results/{label}.csv" for label in RESULTS if any(RESULTS.values())],
    output:
        f"{FOLDER}/results/adaptation.csv",
    log:
        f"{FOLDER}/logs/adaptation.log",
    shell:
        script("roberta/summary.py")
        + "adaptation {output:q} --pretraining {input.pretraining:q} --tables {input.tables:q} 2>&1 | tee {log:q}"
