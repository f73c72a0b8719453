# Raw text to what fairseq-train reads.


def files_of(place, source):
    """The two files of a source of text; those of downloads are made by the rule `download`."""
    if not isinstance(source, str):
        return [f"{FOLDER}/raw/{place}.{lang}" for lang in (SOURCE, TARGET)]
    pair = []
    for lang in (SOURCE, TARGET):
        names = [f"{source}.{lang}", f"{source}.{lang}.gz"]
        present = [name for name in names if Path(name).is_file()]
        if not present:
            raise WorkflowError(f"{place}: there is no file {' or '.join(names)}")
        pair.append(present[0])
    return pair


PLACES = {f"train-{number}": source for number, source in enumerate(TRAIN)}
PLACES |= {"valid": config["valid"]} | {f"test-{name}": source for name, source in TESTS.items()}
FILES = {place: files_of(place, source) for place, source in PLACES.items()}
for name, file in config["inputs"].items():
    if not Path(file).is_file():
        raise WorkflowError(f"inputs: {name}: there is no file {file}")


rule download:
    """A pair of files: downloaded, checked, and taken out of its archive."""
    output:
        f"{FOLDER}/raw/{{place}}.{SOURCE}",
        f"{FOLDER}/raw/{{place}}.{TARGET}",
    params:
        source=lambda w: json.dumps(PLACES[w.place]),
    log:
        f"{FOLDER}/logs/download-{{place}}.log",
    shell:
        "python {SCRIPTS}/download.py {params.source:q} {output} --languages {SOURCE} {TARGET}"
        " --archives {FOLDER}/archives 2>&1 | tee {log}"


rule clean:
    """The training text cleaned; white space normalised in validation and test sets."""
    input:
        train=[file for place, pair in FILES.items() if place.startswith("train-") for file in pair],
        valid=FILES["valid"],
    output:
        expand(f"{FOLDER}/clean/{{split}}.{{lang}}", split=["train", "valid"], lang=[SOURCE, TARGET]),
        counts=f"{FOLDER}/clean/counts.txt",
    params:
        **settings_of("max_words", "max_characters", "max_ratio"),
    log:
        f"{FOLDER}/logs/clean.log",
    shell:
        "python {SCRIPTS}/clean.py {FOLDER}/clean --languages {SOURCE} {TARGET}"
        " --train {input.train} --valid {input.valid} --max-words {params.max_words}"
        " --max-characters {params.max_characters} --max-ratio {params.max_ratio} 2>&1 | tee {log}"


rule learn_subwords:
    """One subword model for both languages."""
    input:
        expand(f"{FOLDER}/clean/train.{{lang}}", lang=[SOURCE, TARGET]),
    output:
        f"{FOLDER}/subwords/{'codes' if config['subwords'] == 'subword_nmt' else 'sentencepiece.model'}",
    params:
        **settings_of("subwords", "vocabulary"),
    threads: 4
    log:
        f"{FOLDER}/logs/subwords.log",
    shell:
        "python {SCRIPTS}/learn_subwords.py {params.subwords} {output} --text {input}"
        " --languages {SOURCE} {TARGET} --size {params.vocabulary} --workers {threads} 2>&1 | tee {log}"


rule encode:
    input:
        text=expand(f"{FOLDER}/clean/{{{{split}}}}.{{lang}}", lang=[SOURCE, TARGET]),
        model=rules.learn_subwords.output,
    output:
        expand(f"{FOLDER}/encoded/{{{{split}}}}.{{lang}}", lang=[SOURCE, TARGET]),
    threads: 4
    log:
        f"{FOLDER}/logs/encode-{{split}}.log",
    shell:
        "python {SCRIPTS}/encode.py {config[subwords]} {input.model} --workers {threads}"
        " --text {SOURCE} {input.text[0]} {output[0]} --text {TARGET} {input.text[1]} {output[1]}"
        " 2>&1 | tee {log}"


rule preprocess:
    """Characters without a subword stand for themselves; only the frequent ones enter the dictionary."""
    input:
        expand(f"{FOLDER}/encoded/{{split}}.{{lang}}", split=["train", "valid"], lang=[SOURCE, TARGET]),
    output:
        directory(f"{FOLDER}/data-bin"),
    params:
        words=config["vocabulary"],
    threads: 4
    log:
        f"{FOLDER}/logs/preprocess.log",
    shell:
        "rm -rf {output}.tmp; fairseq-preprocess --source-lang {SOURCE} --target-lang {TARGET}"
        " --trainpref {FOLDER}/encoded/train --validpref {FOLDER}/encoded/valid --joined-dictionary"
        " --nwordssrc {params.words} --nwordstgt {params.words} --destdir {output}.tmp"
        " --workers {threads} > {log} 2>&1; "
        "(cd {output}.tmp; rm -f preprocess.log; sha256sum * > SHA256SUMS); mv -T {output}.tmp {output}"


rule preprocess_test:
    """A test set with the dictionaries of training; line n stays line n."""
    input:
        text=lambda w: FILES[f"test-{w.test}"],
        model=rules.learn_subwords.output,
        data=rules.preprocess.output,
    output:
        directory(f"{FOLDER}/test-bin/{{test}}"),
    params:
        text=f"{FOLDER}/encoded/test-{{test}}",
    log:
        f"{FOLDER}/logs/preprocess-{{test}}.log",
    shell:
        "rm -rf {output}.tmp; python {SCRIPTS}/encode.py {config[subwords]} {input.model}"
        " --text {SOURCE} {input.text[0]} {params.text}.{SOURCE}"
        " --text {TARGET} {input.text[1]} {params.text}.{TARGET} > {log} 2>&1; "
        "fairseq-preprocess --source-lang {SOURCE} --target-lang {TARGET} --testpref {params.text}"
        " --srcdict {input.data}/dict.{SOURCE}.txt --tgtdict {input.data}/dict.{TARGET}.txt"
        " --destdir {output}.tmp >> {log} 2>&1; mv -T {output}.tmp {output}"
