# Raw text to what fairseq-train reads.

wildcard_constraints:
    run="|".join(map(re.escape, RUNS)),
    model="|".join(map(re.escape, MODELS)),
    test="|".join(map(re.escape, EVALUATIONS)),
    name="|".join(map(re.escape, INPUTS)) or "(?!)",
    metric="|".join(map(re.escape, METRICS)) or "(?!)",
    source="|".join(LANGUAGES),
    target="|".join(LANGUAGES),
    split="train|valid",
    place="|".join(map(re.escape, PLACES)),


rule download:
    """Download a pair of files, check it and extract it from its archive."""
    localrule: True  # the nodes of a cluster may have no way out
    output:
        f"{FOLDER}/raw/{CORPUS}{{place}}.{SOURCE_OF}",
        f"{FOLDER}/raw/{CORPUS}{{place}}.{TARGET_OF}",
    params:
        source=lambda w: json.dumps(PLACES[w.place]),
        languages=CORPUS_LANGUAGES,
        archives=f"{FOLDER}/archives",
    log:
        f"{FOLDER}/logs/{CORPUS}download-{{place}}.log",
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
        train=training_text,
        valid=lambda w: FILES[f"{corpus_of(w)}valid"],
    output:
        f"{FOLDER}/clean/{CORPUS}train.{SOURCE_OF}",
        f"{FOLDER}/clean/{CORPUS}train.{TARGET_OF}",
        f"{FOLDER}/clean/{CORPUS}valid.{SOURCE_OF}",
        f"{FOLDER}/clean/{CORPUS}valid.{TARGET_OF}",
        counts=f"{FOLDER}/clean/{CORPUS}counts.txt",
    params:
        languages=CORPUS_LANGUAGES,
        **settings_of("max_words", "max_characters", "max_ratio"),
        **({"options": CLEANING, "repeats": repeats} if CLEANING else {}),
        folder=lambda w, output: Path(output[0]).parent,
    resources:
        **needs("clean", lambda input: input.train[::2]),
    log:
        f"{FOLDER}/logs/{CORPUS}clean.log",
    shell:
        script("scripts/clean.py")
        + "{params.folder:q} --languages {params.languages:q} --train {input.train:q} --valid {input.valid:q} --max-words {params.max_words:q}"
        " --max-characters {params.max_characters:q} --max-ratio {params.max_ratio:q}"
        + " --repeat {params.repeats}" * (max(REPEATS) > 1)
        + " --check-languages" * config["check_languages"]
        + " 2>&1 | tee {log:q}"


if START:

    rule start:
        """Import the model. Its place is no parameter: a folder that was moved trains nothing anew."""
        input:
            keep=config["keep"],
            # with vocabulary trim, the texts whose tokens stay, and tests of the smaller model
            text=[*texts_of("train"), *texts_of("valid")] if TRIMS else [],
            tests=[file for name in EVALUATIONS for file in TEST_FILES[name] if TRIMS],
        output:
            checkpoint=START_CHECKPOINT,
            description=f"{START_FOLDER}/model.json",
            options=f"{START_FOLDER}/options.txt",
            positions=f"{START_FOLDER}/positions.txt",
            **({"task": f"{START_FOLDER}/task/options.txt"} if MULTILINGUAL else {}),
        params:
            directions=[*map(name_of, DIRECTIONS)],
            **settings_of("validation", "vocabulary", "new_languages"),
            digest=START_DIGEST,
            folder=START_FOLDER,
        resources:
            **needs("start"),
        log:
            f"{FOLDER}/logs/start.log",
        shell:
            script("scripts/start.py")
            + f"{{params.folder:q}} --start {shlex.quote(json.dumps(START)).replace('{', '{{').replace('}', '}}')}"
            f" --directions {' '.join(' '.join(pair) for pair in DIRECTIONS)}"
            + " --multilingual" * MULTILINGUAL
            + " --scores-bleu" * (config["validation"] == "bleu")
            + "".join(f" --new-language {new} {old}" for new, old in config["new_languages"].items())
            + " --trim {input.text:q} {input.keep:q}" * TRIMS
            + "".join(f" --tests {' '.join(EVALUATIONS[name][1])} {shlex.join(TEST_FILES[name])}" for name in EVALUATIONS if TRIMS)
            + (f" {USER_DIR}" if config["user_dir"] else "")
            + " 2>&1 | tee {log:q}"

    SUBWORDS = rules.start.output
    # its subwords and tags, of both sides
    ENCODE = script("scripts/encode.py") + f"start {shlex.quote(START_FOLDER)}" + " --untagged" * MULTILINGUAL
    DICTIONARIES = f"--srcdict {shlex.quote(START_FOLDER)}/source-dict.txt --tgtdict {shlex.quote(START_FOLDER)}/target-dict.txt"
else:

    rule learn_subwords:
        """One subword model for both languages."""
        input:
            texts_of("train"),
        output:
            f"{FOLDER}/subwords/{'codes' if config['subwords'] == 'subword_nmt' else 'sentencepiece.model'}",
        params:
            languages=[language for pair in CORPORA.values() for language in pair],
            **settings_of("subwords", "vocabulary"),
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
        source=f"{FOLDER}/clean/{CORPUS}{{split}}.{SOURCE_OF}",
        target=f"{FOLDER}/clean/{CORPUS}{{split}}.{TARGET_OF}",
        model=SUBWORDS,
    output:
        source=f"{FOLDER}/encoded/{CORPUS}{{split}}.{SOURCE_OF}",
        target=f"{FOLDER}/encoded/{CORPUS}{{split}}.{TARGET_OF}",
    params:
        languages=CORPUS_LANGUAGES,
        **settings_of("subwords"),
    resources:
        **needs("encode", lambda input: [input.source]),
    threads: 4
    log:
        f"{FOLDER}/logs/{CORPUS}encode-{{split}}.log",
    shell:
        f"{ENCODE} --workers {{threads}}"
        " --text {params.languages[0]:q} {input.source:q} {output.source:q}"
        " --text {params.languages[1]:q} {input.target:q} {output.target:q}"
        " 2>&1 | tee {log:q}"


rule preprocess:
    """Characters outside the subword model are kept as tokens; only frequent ones enter the dictionary."""
    input:
        train=texts_of("train", "encoded"),
        valid=texts_of("valid", "encoded"),
    output:
        directory(f"{FOLDER}/data-bin"),
    params:
        languages=[SOURCE, TARGET],
        **settings_of("vocabulary"),
    resources:
        **needs("preprocess", lambda input: input.train[::2]),
    threads: 4
    log:
        f"{FOLDER}/logs/preprocess.log",
    shell:
        f": > {{log:q}}; aside={{output:q}}.$$.tmp; {binarise_all(DICTIONARIES)}{BINARISED}"


rule preprocess_test:
    """Encode a test set with the dictionaries of training; line n remains line n."""
    input:
        source=lambda w: TEST_FILES[w.test][0],
        target=lambda w: TEST_FILES[w.test][1],
        model=SUBWORDS,
        data=rules.preprocess.output,
    output:
        directory(f"{FOLDER}/test-bin/{{test}}"),
    params:
        languages=(lambda w: [*EVALUATIONS[w.test][1]]) if MULTILINGUAL else [SOURCE, TARGET],
        **settings_of("subwords"),
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
