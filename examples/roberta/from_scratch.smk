# A vocabulary of the config's own text, for models that are trained from scratch.


rule learn_subwords:
    input:
        f"{FOLDER}/clean/train",
    output:
        SUBWORDS,
    params:
        **settings_of("subwords", "vocabulary", "language"),
    resources:
        **needs("learn_subwords"),
    log:
        f"{FOLDER}/logs/subwords.log",
    shell:
        script("scripts/learn_subwords.py")
        + "{params.subwords:q} {output:q} --text {input:q} --languages {params.language:q}"
        " --size {params.vocabulary:q} 2>&1 | tee {log:q}"


rule encode:
    input:
        text=f"{FOLDER}/clean/{{split}}",
        model=rules.learn_subwords.output,
    output:
        f"{FOLDER}/encoded/{{split}}",
    params:
        **settings_of("subwords", "language"),
        longest=config["length"] - 2,  # a sample also has <s> and </s>
    resources:
        **needs("encode", lambda input: [input.text]),
    threads: 4
    log:
        f"{FOLDER}/logs/encode-{{split}}.log",
    shell:
        script("scripts/encode.py")
        + "{params.subwords:q} {input.model:q} --text {params.language:q} {input.text:q} {output:q}"
        " --split --longest {params.longest:q} --workers {threads} 2>&1 | tee {log:q}"


rule preprocess:
    """Characters outside the subword model are kept as tokens; only frequent ones enter the dictionary."""
    input:
        train=f"{FOLDER}/encoded/train",
        valid=f"{FOLDER}/encoded/valid",
    output:
        directory(f"{FOLDER}/data-bin"),
    params:
        words=config["vocabulary"],
        made_from=json.dumps(settings_of("lower", "language")),
    resources:
        **needs("preprocess", lambda input: [input.train]),
    threads: 4
    log:
        f"{FOLDER}/logs/preprocess.log",
    shell:
        "aside={output:q}.$$.tmp; fairseq-preprocess --only-source --trainpref {input.train:q}"
        " --validpref {input.valid:q} --nwordssrc {params.words:q} --destdir \"$aside\""
        " --workers {threads} > {log:q} 2>&1; printf %s {params.made_from:q} > \"$aside/made-from.json\"; "
        f"{BINARISED}"


rule export:
    """Export a pretrained model to transformers, for fine-tuning."""
    input:
        trained=lambda w: f"{FOLDER}/runs/{MODELS[w.model][0]}/trained",
        data=rules.preprocess.output,
        subwords=SUBWORDS,
    output:
        directory(f"{FOLDER}/hf/{{model}}"),
    params:
        run=lambda w, input: str(Path(input.trained).parent),
        # Not quoted below, so that the shell finds the checkpoint of these updates.
        checkpoint=lambda w: MODELS[w.model][1],
        tokenizer="moses" if config["subwords"] == "subword_nmt" else "none",
    resources:
        **needs("average"),
    log:
        f"{FOLDER}/logs/export-{{model}}.log",
    shell:
        "diet-fairseq export hf {params.run:q}/{params.checkpoint} {output:q} --data {input.data:q}"
        f" --subwords {{input.subwords:q}} --tokenizer {{params.tokenizer:q}} {USER_DIR} > {{log:q}} 2>&1"
