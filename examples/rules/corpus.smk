# Raw text to what fairseq-train reads.

wildcard_constraints:
    run="|".join(map(re.escape, RUNS)),
    model="|".join(map(re.escape, MODELS)),
    test="|".join(map(re.escape, TESTS)),
    name="|".join(map(re.escape, config["inputs"])) or "(?!)",
    lang=f"{SOURCE}|{TARGET}",
    split="train|valid",
    place="|".join(map(re.escape, PLACES)),


rule download:
    """A pair of files: downloaded, checked, and taken out of its archive."""
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
        + "{params.source:q} {output} --languages {params.languages} --archives {params.archives}"
        " 2>&1 | tee {log}"


rule clean:
    """The training text cleaned; white space normalised in validation and test sets."""
    input:
        train=[file for place, pair in FILES.items() if place.startswith("train-") for file in pair],
        valid=FILES["valid"],
    output:
        expand(f"{FOLDER}/clean/{{split}}.{{lang}}", split=["train", "valid"], lang=[SOURCE, TARGET]),
        counts=f"{FOLDER}/clean/counts.txt",
    params:
        **settings_of("languages", "max_words", "max_characters", "max_ratio"),
        folder=lambda w, output: Path(output[0]).parent,
    log:
        f"{FOLDER}/logs/clean.log",
    shell:
        script("scripts/clean.py")
        + "{params.folder} --languages {params.languages} --train {input.train} --valid {input.valid} --max-words {params.max_words}"
        " --max-characters {params.max_characters} --max-ratio {params.max_ratio} 2>&1 | tee {log}"


rule learn_subwords:
    """One subword model for both languages."""
    input:
        expand(f"{FOLDER}/clean/train.{{lang}}", lang=[SOURCE, TARGET]),
    output:
        f"{FOLDER}/subwords/{'codes' if config['subwords'] == 'subword_nmt' else 'sentencepiece.model'}",
    params:
        **settings_of("languages", "subwords", "vocabulary"),
    log:
        f"{FOLDER}/logs/subwords.log",
    shell:
        script("scripts/learn_subwords.py")
        + "{params.subwords} {output} --text {input} --languages {params.languages} --size {params.vocabulary} 2>&1 | tee {log}"


rule encode:
    input:
        source=f"{FOLDER}/clean/{{split}}.{SOURCE}",
        target=f"{FOLDER}/clean/{{split}}.{TARGET}",
        model=rules.learn_subwords.output,
    output:
        source=f"{FOLDER}/encoded/{{split}}.{SOURCE}",
        target=f"{FOLDER}/encoded/{{split}}.{TARGET}",
    params:
        **settings_of("languages", "subwords"),
    threads: 4
    log:
        f"{FOLDER}/logs/encode-{{split}}.log",
    shell:
        script("scripts/encode.py")
        + "{params.subwords} {input.model} --workers {threads}"
        " --text {params.languages[0]} {input.source} {output.source}"
        " --text {params.languages[1]} {input.target} {output.target}"
        " 2>&1 | tee {log}"


rule preprocess:
    """Characters without a subword stand for themselves; only the frequent ones enter the dictionary."""
    input:
        expand(f"{FOLDER}/encoded/{{split}}.{{lang}}", split=["train", "valid"], lang=[SOURCE, TARGET]),
    output:
        directory(f"{FOLDER}/data-bin"),
    params:
        **settings_of("languages", "vocabulary"),
        text=lambda w, input: Path(input[0]).parent,
    threads: 4
    log:
        f"{FOLDER}/logs/preprocess.log",
    shell:
        "aside={output}.$$.tmp; fairseq-preprocess --joined-dictionary"
        " --source-lang {params.languages[0]} --target-lang {params.languages[1]}"
        " --trainpref {params.text}/train --validpref {params.text}/valid --destdir $aside"
        " --nwordssrc {params.vocabulary} --nwordstgt {params.vocabulary}"
        f" --workers {{threads}} > {{log}} 2>&1; {BINARISED}"


rule preprocess_test:
    """A test set with the dictionaries of training; line n stays line n."""
    input:
        source=lambda w: FILES[f"test-{w.test}"][0],
        target=lambda w: FILES[f"test-{w.test}"][1],
        model=rules.learn_subwords.output,
        data=rules.preprocess.output,
    output:
        directory(f"{FOLDER}/test-bin/{{test}}"),
    params:
        **settings_of("languages", "subwords"),
        text=f"{FOLDER}/encoded/test-{{test}}",
    log:
        f"{FOLDER}/logs/preprocess-{{test}}.log",
    shell:
        "aside={output}.$$.tmp; "
        + script("scripts/encode.py")
        + "{params.subwords} {input.model}"
        " --text {params.languages[0]} {input.source} {params.text}.{params.languages[0]}"
        " --text {params.languages[1]} {input.target} {params.text}.{params.languages[1]}"
        " > {log} 2>&1; "
        "fairseq-preprocess --testpref {params.text}"
        " --source-lang {params.languages[0]} --target-lang {params.languages[1]}"
        " --srcdict {input.data}/dict.{params.languages[0]}.txt"
        " --tgtdict {input.data}/dict.{params.languages[1]}.txt"
        " --destdir $aside >> {log} 2>&1; "
        f"{RENAME}"
