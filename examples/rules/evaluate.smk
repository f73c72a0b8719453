# Translations, scores, the table and the curves.

rule generate:
    """Translate a test set with fairseq-generate, and convert its output to plain text."""
    input:
        data=rules.preprocess_test.output,
        source=lambda w: TEST_FILES[w.test][0],
        checkpoints=checkpoints,
    output:
        f"{FOLDER}/{{model}}/evaluation-{{test}}/translations.txt",
    params:
        **SEARCH,
        languages=lambda w: EVALUATIONS[w.test][1],
    resources:
        gpu=min(1, GPUS),
        **needs("translate"),
    threads: THREADS
    log:
        f"{FOLDER}/{{model}}/evaluation-{{test}}/generate.log",
    shell:
        WITH_GPUS + script("scripts/generate.py")
        + "{input.data:q} --checkpoints {input.checkpoints:q} --source {input.source:q} --output {output:q}"
        f" {SEARCH_WORDS} --languages {{params.languages}} {USER_DIR}"
        + f' --task-options="{TASK}"' * MULTILINGUAL
        + " > {log:q} 2>&1"


# diet-fairseq translate finds the formula of the penalty and the longest length in model.json
TRANSLATE_WORDS = " ".join(
    f"--{key.replace('_', '-')} {value}" for key, value in SEARCH.items() if key not in ("penalty", *NEW_SEARCH_KEYS)
)


rule translate:
    """Translate any text with `diet-fairseq translate`."""
    input:
        text=lambda w: INPUTS[w.name][0],
        checkpoints=checkpoints,
    output:
        f"{FOLDER}/{{model}}/input-{{name}}.txt",
    params:
        **SEARCH,
        languages=lambda w: "--source-lang {} --target-lang {}".format(*INPUTS[w.name][1].split("-")) if MULTILINGUAL else "",
        sentences="" if config["split_sentences"] is None else f"--split-sentences {'yes' if config['split_sentences'] else 'no'}",
    resources:
        **needs("translate"),
    threads: THREADS
    log:
        f"{FOLDER}/{{model}}/input-{{name}}.log",
    shell:
        f"diet-fairseq translate {{input.checkpoints:q}} {{input.text:q}} {USER_DIR} {TRANSLATE_WORDS}"
        " {params.languages} {params.sentences} > {output:q}.tmp 2> {log:q}; mv {output:q}.tmp {output:q}"


rule score:
    localrule: True
    input:
        translations=rules.generate.output,
        reference=lambda w: TEST_FILES[w.test][1],
        checkpoints=checkpoints,
    output:
        f"{FOLDER}/{{model}}/evaluation-{{test}}/scores.json",
    params:
        test_set=lambda w: sacrebleu_name(TESTS[EVALUATIONS[w.test][0]]),
        pair=(lambda w: [*EVALUATIONS[w.test][1]]) if MULTILINGUAL else [SOURCE, TARGET],
        tokenizer=config["bleu_tokenizer"],
        settings=json.dumps(SEARCH),
    log:
        f"{FOLDER}/{{model}}/evaluation-{{test}}/score.log",
    shell:
        script("scripts/score.py")
        + "{input.translations:q} {input.reference:q} {output:q} --checkpoints {input.checkpoints:q}"
        " --pair {params.pair:q} --tokenizer {params.tokenizer:q} --test-set={params.test_set:q} --settings {params.settings:q}"
        " > {log:q} 2>&1"


rule metric:
    """A program of the config's `metrics`."""
    input:
        source=lambda w: TEST_FILES[w.test][0],
        translations=rules.generate.output,
        reference=lambda w: TEST_FILES[w.test][1],
    output:
        f"{FOLDER}/{{model}}/evaluation-{{test}}/metric-{{metric}}.json",
    params:
        command=lambda w: METRICS[w.metric],
    resources:
        gpu=min(1, GPUS),
        **needs("metric"),
    threads: THREADS
    log:
        f"{FOLDER}/{{model}}/evaluation-{{test}}/metric-{{metric}}.log",
    shell:
        WITH_GPUS + script("scripts/metric.py")
        + "{output:q} --files {input:q} -- {params.command} > {log:q} 2>&1"


rule table:
    """Write the table: scores of all models, means and deviations over seeds, paired tests."""
    localrule: True
    input:
        expand(f"{FOLDER}/{{model}}/evaluation-{{test}}/scores.json", model=MODELS, test=EVALUATIONS),
        expand(f"{FOLDER}/{{model}}/evaluation-{{test}}/metric-{{metric}}.json", model=MODELS, test=EVALUATIONS, metric=METRICS),
    output:
        csv=f"{FOLDER}/results/results.csv",
        table=f"{FOLDER}/results/table.md",
    params:
        models=json.dumps({
            f"{FOLDER}/{model}": {
                "scheme": runs[0].label if runs else AS_IT_WAS,
                "size": runs[0].size if runs else "",
                "seeds": " ".join(str(run.seed) for run in runs),
            }
            for model, runs in MODELS.items()
        }),
        tests=" ".join(
            f"--test {name} {shlex.quote(TEST_FILES[name][1])} {' '.join(direction)}"
            for name, (_, direction) in EVALUATIONS.items()
        ),
        **({"directions": [*map(name_of, DIRECTIONS)]} if MULTILINGUAL else {}),
        baseline=config["baseline"] or (AS_IT_WAS if START else ""),
        tokenizer=config["bleu_tokenizer"],
        metrics=" ".join(["--metrics", *METRICS]) if METRICS else "",
    log:
        f"{FOLDER}/logs/table.log",
    shell:
        script("scripts/table.py")
        + "{output:q} {params.tests} {params.metrics} --models {params.models:q} --baseline={params.baseline:q}"
        " --tokenizer {params.tokenizer:q}"
        + " --directions {params.directions:q}" * MULTILINGUAL
        + " 2>&1 | tee {log:q}"


rule curves:
    localrule: True
    input:
        expand(f"{FOLDER}/runs/{{run}}/trained", run=RUNS),
    output:
        f"{FOLDER}/results/curves.png",
    params:
        logs=json.dumps({
            ", ".join(filter(None, (label, size))): [
                f"{FOLDER}/runs/{run.name}/train.log" for run in GRID if (run.label, run.size) == (label, size)
            ]
            for label in SCHEMES
            for size in config["sizes"]
        }),
    log:
        f"{FOLDER}/logs/curves.log",
    shell:
        script("scripts/curves.py") + "{output:q} --logs {params.logs:q}"
        + f" --directions {' '.join(map(name_of, DIRECTIONS))}" * MULTILINGUAL
        + " > {log:q} 2>&1"
