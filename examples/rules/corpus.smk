# Raw text to what fairseq-train reads.

wildcard_constraints:
    run="|".join(map(re.escape, RUNS)),
    model="|".join(map(re.escape, MODELS)),
    test="|".join(map(re.escape, TESTS)),
    name="|".join(map(re.escape, config["inputs"])) or "(?!)",
    metric="|".join(map(re.escape, METRICS)) or "(?!)",
    lang=f"{SOURCE}|{TARGET}",
    split="train|valid",
    place="|".join(map(re.escape, PLACES)),


rule download:
    """Download a pair of files, check it and extract it from its archive."""
    localrule: True  # the nodes of a cluster may have no way out
    output:
        f"{FOLDER}/raw/{{place}}.{SOURCE}",
        f"{FOLDER}/raw/{{place}}.{TARGET}",
    params:
        source=lambda w: json.dumps(PLACES[w.place]),
        languages=config["languages"],
        archives=f"{FOLDER}/archives",
    log:
        f"{FOLDER}/logs/download-{{place}}.log",
    shell:
        script("scripts/download.py")
        + "{params.source:q} {output:q} --languages {params.languages:q} --archives {params.archives:q}"
        " 2>&1 | tee {log:q}"


# Options that are new in 0.5: a param only if they are used, so that text of 0.4 is not cleaned again.
CLEANING = f"--repeat {' '.join(map(str, REPEATS))} " if max(REPEATS) > 1 else ""
CLEANING += "--check-languages " if config["check_languages"] else ""


rule clean:
    """Clean the training text; normalise white space in validation and test sets."""
    input:
        train=[file for place, pair in FILES.items() if place.startswith("train-") for file in pair],
        valid=FILES["valid"],
    output:
        expand(f"{FOLDER}/clean/{{split}}.{{lang}}", split=["train", "valid"], lang=[SOURCE, TARGET]),
        counts=f"{FOLDER}/clean/counts.txt",
    params:
        **settings_of("languages", "max_words", "max_characters", "max_ratio"),
        **({"options": CLEANING} if CLEANING else {}),
        folder=lambda w, output: Path(output[0]).parent,
    resources:
        **needs("clean", lambda input: input.train[::2]),
    log:
        f"{FOLDER}/logs/clean.log",
    shell:
        script("scripts/clean.py")
        + "{params.folder:q} --languages {params.languages:q} --train {input.train:q} --valid {input.valid:q} --max-words {params.max_words:q}"
        " --max-characters {params.max_characters:q} --max-ratio {params.max_ratio:q}"
        f" {CLEANING}2>&1 | tee {{log:q}}"


if START:

    rule start:
        """Import the model. Its place is no parameter: a folder that was moved trains nothing anew."""
        input:
            keep=config["keep"],
            # with vocabulary trim, the texts whose tokens stay, and tests of the smaller model
            text=[f"{FOLDER}/clean/{split}.{lang}" for split in ("train", "valid") for lang in (SOURCE, TARGET) if TRIMS],
            tests=[file for name in TESTS for file in FILES[f"test-{name}"] if TRIMS],
        output:
            checkpoint=START_CHECKPOINT,
            description=f"{START_FOLDER}/model.json",
            options=f"{START_FOLDER}/options.txt",
            positions=f"{START_FOLDER}/positions.txt",
        params:
            **settings_of("languages", "validation", "vocabulary", "new_languages"),
            digest=START_DIGEST,
            folder=START_FOLDER,
        resources:
            **needs("start"),
        log:
            f"{FOLDER}/logs/start.log",
        shell:
            script("scripts/start.py")
            + f"{{params.folder:q}} --start {shlex.quote(json.dumps(START)).replace('{', '{{').replace('}', '}}')}"
            " --languages {params.languages:q}"
            + " --scores-bleu" * (config["validation"] == "bleu")
            + "".join(f" --new-language {new} {old}" for new, old in config["new_languages"].items())
            + " --trim {input.text:q} {input.keep:q} --tests {input.tests:q}" * TRIMS
            + (f" {USER_DIR}" if config["user_dir"] else "")
            + " 2>&1 | tee {log:q}"

    SUBWORDS = rules.start.output
    # its subwords and tags, of both sides
    ENCODE = script("scripts/encode.py") + f"start {shlex.quote(START_FOLDER)}"
    DICTIONARIES = f"--srcdict {shlex.quote(START_FOLDER)}/source-dict.txt --tgtdict {shlex.quote(START_FOLDER)}/target-dict.txt"
else:

    rule learn_subwords:
        """One subword model for both languages."""
        input:
            expand(f"{FOLDER}/clean/train.{{lang}}", lang=[SOURCE, TARGET]),
        output:
            f"{FOLDER}/subwords/{'codes' if config['subwords'] == 'subword_nmt' else 'sentencepiece.model'}",
        params:
            **settings_of("languages", "subwords", "vocabulary"),
        resources:
            **needs("learn_subwords"),
        log:
            f"{FOLDER}/logs/subwords.log",
        shell:
            script("scripts/learn_subwords.py")
            + "{params.subwords:q} {output:q} --text {input:q} --languages {params.languages:q} --size {params.vocabulary:q} 2>&1 | tee {log:q}"

    SUBWORDS = rules.learn_subwords.output
    ENCODE = script("scripts/encode.py") + "{params.subwords:q} {input.model:q}"
    DICTIONARIES = "--joined-dictionary --nwordssrc {params.vocabulary:q} --nwordstgt {params.vocabulary:q}"


rule encode:
    input:
        source=f"{FOLDER}/clean/{{split}}.{SOURCE}",
        target=f"{FOLDER}/clean/{{split}}.{TARGET}",
        model=SUBWORDS,
    output:
        source=f"{FOLDER}/encoded/{{split}}.{SOURCE}",
        target=f"{FOLDER}/encoded/{{split}}.{TARGET}",
    params:
        **settings_of("languages", "subwords"),
    resources:
        **needs("encode", lambda input: [input.source]),
    threads: 4
    log:
        f"{FOLDER}/logs/encode-{{split}}.log",
    shell:
        ENCODE + " --workers {threads}"
        " --text {params.languages[0]:q} {input.source:q} {output.source:q}"
        " --text {params.languages[1]:q} {input.target:q} {output.target:q}"
        " 2>&1 | tee {log:q}"


rule preprocess:
    """Characters outside the subword model are kept as tokens; only frequent ones enter the dictionary."""
    input:
        expand(f"{FOLDER}/encoded/{{split}}.{{lang}}", split=["train", "valid"], lang=[SOURCE, TARGET]),
    output:
        directory(f"{FOLDER}/data-bin"),
    params:
        **settings_of("languages", "vocabulary"),
        text=lambda w, input: Path(input[0]).parent,
    resources:
        **needs("preprocess", lambda input: input[:1]),
    threads: 4
    log:
        f"{FOLDER}/logs/preprocess.log",
    shell:
        f"aside={{output:q}}.$$.tmp; fairseq-preprocess {DICTIONARIES}"
        " --source-lang {params.languages[0]:q} --target-lang {params.languages[1]:q}"
        " --trainpref {params.text:q}/train --validpref {params.text:q}/valid --destdir \"$aside\""
        f" --workers {{threads}} > {{log:q}} 2>&1; {BINARISED}"


rule preprocess_test:
    """Encode a test set with the dictionaries of training; line n remains line n."""
    input:
        source=lambda w: FILES[f"test-{w.test}"][0],
        target=lambda w: FILES[f"test-{w.test}"][1],
        model=SUBWORDS,
        data=rules.preprocess.output,
    output:
        directory(f"{FOLDER}/test-bin/{{test}}"),
    params:
        **settings_of("languages", "subwords"),
        text=f"{FOLDER}/encoded/test-{{test}}",
    resources:
        **needs("preprocess"),
    log:
        f"{FOLDER}/logs/preprocess-{{test}}.log",
    shell:
        "aside={output:q}.$$.tmp; "
        + ENCODE
        + " --text {params.languages[0]:q} {input.source:q} {params.text:q}.{params.languages[0]:q}"
        " --text {params.languages[1]:q} {input.target:q} {params.text:q}.{params.languages[1]:q}"
        " > {log:q} 2>&1; "
        "fairseq-preprocess --testpref {params.text:q}"
        " --source-lang {params.languages[0]:q} --target-lang {params.languages[1]:q}"
        " --srcdict {input.data:q}/dict.{params.languages[0]:q}.txt"
        " --tgtdict {input.data:q}/dict.{params.languages[1]:q}.txt"
        " --destdir \"$aside\" >> {log:q} 2>&1; "
        f"{RENAME}"
