"""Every key of a config: its rule, its default, what it means."""

import re
from collections.abc import Hashable
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, model_validator

Item = TypeVar("Item", bound=Hashable)
Some = TypeVar("Some")
#: the default of a key that is optional, but not null
ABSENT: Any = None
SCHEME = "the name of a scheme, and may have options of fairseq-train behind it"
SIGNS = "begin with a letter or a digit, and may also have hyphens and underscores"


class Section(
    BaseModel, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
):
    """A config, or a mapping in it."""


def check_one_line(text: str) -> str:
    if re.search(r"[\0-\x1f\x7f]", text):  # a line break would end a shell command
        raise ValueError("must be one line: write >- instead of | in front of it")
    return text


def matches(pattern: str, rule: str) -> AfterValidator:
    """A check that all of a text matches a pattern; ``rule`` says in words what it must do."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must {rule}")
        return text

    return AfterValidator(check)


def excludes(*names: str) -> AfterValidator:
    return matches(f"(?!({'|'.join(names)})$).*", f"not be {', '.join(names)}")


def check_unique(items: list[Item]) -> list[Item]:
    if len({*items}) < len(items):
        raise ValueError("must have no entry twice")
    return items


Text = Annotated[str, AfterValidator(check_one_line)]
FOLDER = "be a path of letters, digits, spaces and ._@+=#/-, no space or - first, no space last"
Folder = Annotated[Text, matches(r"[\w.@+=/]([\w.#@+=/ -]*[\w.#@+=/-])?", FOLDER)]
File = Annotated[Text, matches(r"(?!-)[^{}]+", "be a path without braces, and no hyphen first")]
PREFIX = "be a path without other braces than {lang} and {pair}, and no hyphen first"
Prefix = Annotated[Text, matches("(?!-)([^{}]|[{](lang|pair)[}])+", PREFIX)]
Url = Annotated[Text, matches("https?://.*", "begin with http:// or https://")]
Sha256 = Annotated[Text, matches("[0-9a-f]{64}", "be 64 digits from 0 to f")]
Language = Annotated[Text, matches("[A-Za-z0-9][A-Za-z0-9_-]*", SIGNS)]
PAIR = "be two languages with a hyphen between, such as en-de"
Pair = Annotated[Text, matches("[A-Za-z0-9][A-Za-z0-9_]*-[A-Za-z0-9][A-Za-z0-9_]*", PAIR)]
DIRECTIONS = "be all, or from_, to_ or with_ and a language"
Directions = Annotated[Text, matches("all|(from|to|with)_[A-Za-z0-9][A-Za-z0-9_-]*", DIRECTIONS)]
Name = Annotated[Text, matches("[A-Za-z0-9][A-Za-z0-9_.+-]*", f"{SIGNS}, dots and +")]
Label = Annotated[Name, excludes("pretraining")]
StartLabel = Annotated[Label, excludes("adaptation", "as_it_was")]
TestSet = Annotated[Text, matches("[A-Za-z0-9]+", "have letters and digits only")]
Scheme = Annotated[Text, matches("[a-z][a-z0-9_]*( .*)?", f"be {SCHEME}")]
MODEL = f"be bert_, roberta_ or electra_ with {SCHEME}"
Model = Annotated[Text, matches("(bert|roberta|electra)_[a-z][a-z0-9_]*( .*)?", MODEL)]
COMMAND = "have the word {hypotheses}, which stands for the translations"
Command = Annotated[Text, matches(".*[{]hypotheses[}].*", COMMAND)]

Count = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Length = Annotated[int, Field(ge=3)]
Gpus = Annotated[int, Field(ge=0)] | Literal["auto"]
Threads = Count | Literal["auto"]
Precision = Literal["auto", "float32", "bfloat16"]
Subwords = Literal["sentencepiece", "subword_nmt"]
Unique = Annotated[list[Item], AfterValidator(check_unique)]
Filled = Annotated[Some, Field(min_length=1)]
Seeds = Filled[Unique[Annotated[int, Field(ge=0)]]]
Rates = Filled[Unique[Annotated[float, Field(gt=0)]]]
Epochs = Filled[Unique[Count]]


class Source(Section):
    """Text from elsewhere: a test set of sacreBLEU's, or a download."""

    KINDS: ClassVar = [("sacrebleu",), ("url", "member", "sha256")]
    sacrebleu: Text = ABSENT
    url: Url = ABSENT
    """{lang} stands for each language, {pair} for the two as `pairs` names them first"""
    member: Text = ABSENT
    """file in the archive that the URL gives, {lang} and {pair} in its name"""
    sha256: Sha256 | dict[Text, Sha256] | None = None
    """of the file, or by language, by pair, or by both, such as en-de.en; null: unknown"""

    @model_validator(mode="after")
    def check_kind(self) -> Self:
        keys = self.model_fields_set
        if not any(kind[0] in keys and keys <= {*kind} for kind in self.KINDS):
            kinds = ", ".join(kind[0] for kind in self.KINDS)
            raise ValueError(f"must have one of the keys {kinds}, and no key that another needs")
        return self


class TrainingText(Source):
    KINDS: ClassVar = [*Source.KINDS, ("file", "repeat", "pairs")]
    file: Prefix = ABSENT
    """files beside a larger source"""
    repeat: Count = ABSENT
    """how often each of its pairs is used in an epoch"""
    pairs: Filled[list[Pair]] = ABSENT
    """pairs of languages that it has, in either order, if not all"""


class Input(Section):
    file: File
    pair: Pair


class Checkpoint(Section):
    """A checkpoint of fairseq, and its files as for `diet-fairseq translate`."""

    checkpoint: File
    data: File = ABSENT
    """folder of the dictionaries"""
    subwords: File = ABSENT
    """subword model, or none"""
    tokenizer: Literal["none", "moses"] = ABSENT


#: columns that the table has anyway
COLUMNS = ("folder", "scheme", "size", "seeds", "test", "model", "BLEU", "chrF", "parameters")
Column = Annotated[Name, excludes(*COLUMNS, "minutes")]
Size = Literal["tiny", "base", "iwslt_de_en", "wmt_en_de", "wmt_en_de_big"]
BleuTokenizer = Literal[
    "auto", "none", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200"
]


def count_sources(value: object) -> str:
    is_one = not isinstance(value, dict) or value.keys() & {"sacrebleu", "url"}
    return "one" if is_one else "several"


class Translation(Section):
    """A config of examples/Snakefile."""

    folder: Folder
    """everything that is made lies here"""
    languages: Annotated[Unique[Language], Field(min_length=2)] | None = None
    """source and target, or all languages of `directions`; a code is part of files' names"""
    # One model for several directions: `languages` and `directions`, or `pairs`
    directions: Directions | None = None
    """all, from_LANGUAGE, to_LANGUAGE, with_LANGUAGE (from and to); null: first to second"""
    pairs: Unique[Pair] = []
    """instead of languages: directions such as en-de"""
    temperature: Annotated[float, Field(gt=0)] = 5
    """a direction with the share s of all pairs is sampled in proportion to s^(1/temperature)"""

    # Text: files PREFIX.LANGUAGE or PREFIX.LANGUAGE.gz; {lang} stands for the language, and nothing
    # is added then; {pair} for the direction or its reverse, such as en-de
    train: Prefix | TrainingText | Filled[list[Prefix | TrainingText]]
    valid: Prefix | Source
    test: Annotated[
        Annotated[Prefix | Source, Tag("one")]
        | Annotated[Filled[dict[Name, Prefix | Source]], Tag("several")],
        Discriminator(count_sources),
    ]
    """one test set, or several by name"""
    inputs: dict[Name, File | Input] = {}
    """text without a reference: name -> file, with its direction if there are several"""
    split_sentences: bool | None = None
    """whether `inputs` are translated by sentence; null: unless most training lines have several"""

    # A model that trainings start from, instead of new ones
    start: File | Checkpoint | None = None
    """a folder of transformers, a folder with model.json, such as a run or results/best, or a
    checkpoint; its subwords, vocabulary, shape and language tags stay. Defaults with it: schemes
    [start], learning_rate 0.0002, warmup a tenth of updates (at most 400), average at most updates,
    beam and length penalty of the model"""
    keep: list[File] = []
    """files of text in either language, whose tokens stay with vocabulary trim, too"""
    new_languages: dict[Language, Language] = {}
    """language that a multilingual start lacks -> language whose tag the new one begins with"""

    # Cleaning of the training text: a pair that exceeds a limit on either side is dropped
    max_words: Count = 250
    max_characters: Count = 2500
    max_ratio: Annotated[float, Field(ge=1)] = 3
    """words of one side to the other's; in scripts without spaces letters are parts of words"""
    check_languages: bool = False
    """drop a pair if py3langid (the extra `detect`) finds that a side is in another language"""

    # Models: one for each scheme, size and seed
    subwords: Subwords = "sentencepiece"
    """of both languages together"""
    vocabulary: Count | Literal["trim"] = 8000
    """number of subwords; with start: trim keeps the tokens of the training text and of `keep`,
    single characters and tags"""
    schemes: Filled[Unique[Name]] | Filled[dict[Name, Scheme]] = ["diet_rel"]
    """position schemes, or labels -> 'SCHEME [options of fairseq-train]'; stock is fairseq's own
    model, start has the positions of the model in the key start"""
    user_dir: File | None = None
    """a package of your own, fairseq's --user-dir: it registers position schemes"""
    sizes: Filled[Unique[Size]] = ["tiny"]
    seeds: Seeds = [1]

    # Training
    updates: Count = 5000
    """steps of the optimizer, not epochs"""
    batch: Count = 4096
    """tokens of an update, on any number of GPUs"""
    learning_rate: Amount = 0.002  # 0 only with start
    """at the end of warm-up"""
    warmup: Count = 400
    """updates; then inverse square root"""
    dropout: Share | None = None
    """null: the size's own, or the start's"""
    options: Text = ""
    """more options of fairseq-train, in words as a shell splits them"""
    validation: Text = "loss"
    """what checkpoint_best.pt and patience go by: loss, or bleu (translate the validation set
    greedily, too); or a name of `metrics`: they go by the loss, and best-NAME.pt is the checkpoint
    with the highest score"""
    patience: Count | None = None
    """validations without a better value, after which a training ends; null: never"""
    save_interval: Count = 250
    """updates between checkpoints"""

    # Translation and scores
    average: Count = 5
    """last checkpoints to average"""
    beam: Count = 5
    length_penalty: float = 1.0
    max_len_a: Annotated[float, Field(ge=0, le=10)] = 1.0
    """a translation has at most max_len_a x s + 50 subwords, s of the longest source of its batch:
    more than 1 for outputs that are far longer than their sources"""
    penalty: Literal["fairseq", "tensor2tensor"] = "fairseq"
    """length^a or ((5 + length) / 6)^a, a: length_penalty"""
    ensemble: bool = False
    """also translate with all seeds of a model together"""
    bleu_tokenizer: BleuTokenizer = "auto"
    """sacreBLEU's; auto: zh, ja-mecab, ko-mecab or flores200 if the target needs it, else 13a"""
    metrics: dict[Column, Command] = {}
    """more metrics: column of the table -> program and its words; {source}, {hypotheses} and
    {reference} stand for files, and the last number of its last line is the score"""
    baseline: Text | None = None
    """scheme to test the others against; null with start: the model as it was"""

    # Machine: another value trains nothing anew
    gpus: Gpus = "auto"
    """for each training; 0: the CPU; auto: this machine's, divided by the trainings"""
    precision: Precision = "auto"
    """auto: bfloat16 where GPUs or CPU multiply in it; a training that has begun keeps its own"""
    tokens_per_gpu: Count = 5000
    """that fit into memory"""
    threads: Threads = "auto"
    """of a training or translation; auto: Snakemake's cores, divided by the trainings"""


class EarlierCheckpoint(Section):
    checkpoint_of: Text
    """the label of a run"""
    updates: Count
    """after which it was saved"""


class Task(Section):
    data: File
    """folder of its files"""
    task: File = ABSENT
    """its name in tasks.yaml, or a file like it (the label)"""
    rates: Rates = ABSENT
    epochs: Epochs = ABSENT
    seeds: Seeds = ABSENT
    length: Length = ABSENT


class Questions(Section):
    train: File = ABSENT
    """a file in SQuAD's format"""
    language: Language = ABSENT
    """of a train file in several languages, such as english: ids begin with it"""
    tests: dict[TestSet, dict[Language, File]] = ABSENT
    """XQuAD, MLQA, TyDiQA or another -> language, or text's and question's (de-en) -> file"""
    rates: Rates = ABSENT
    epochs: Epochs = ABSENT
    seeds: Seeds = ABSENT
    length: Annotated[int, Field(ge=70)] = ABSENT
    stride: Count = ABSENT
    """overlap of windows, tokens (128)"""

    @model_validator(mode="after")
    def check_train(self) -> Self:
        if self.model_fields_set and "train" not in self.model_fields_set:
            raise ValueError("must have the key train")
        return self


class Download(Section):
    url: Url
    sha256: Sha256 | None
    """of what the URL gives; null: unknown, and refused"""
    member: Text = ABSENT
    """the file's name in the archive that the URL gives"""


class Tuning(Section):
    statistic: Literal["diet", "tupe"] = "diet"
    """of a run: its best, or its last evaluation"""
    rates: Rates = [0.00003]
    epochs: Epochs = [5]
    seeds: Seeds = [1, 2, 3, 4, 5]
    length: Length = 128
    batch: Count = 32
    per_step: Count | None = None
    """samples that fit into memory at once; null: batch"""
    warmup: Share = 0.1
    weight_decay: Amount = 0.01
    evaluate_every: Annotated[int, Field(ge=0)] = 0
    """updates, besides the ends of epochs"""
    group_by_length: bool = False
    bf16: bool = False


class Encoder(Section):
    """A config of examples/roberta/Snakefile."""

    folder: Folder
    """everything that is made lies here"""

    # Text and subwords
    text: Filled[dict[Language, Filled[list[File]]]]
    """language -> files of text, gzipped or not, with empty lines between documents"""
    wikitext: list[File] = []
    """which of the files are in WikiText's format"""
    lines_per_document: Count | None = None
    """of a file without empty lines; null: it is one document"""
    lower: bool = False
    """lower-case the text"""
    valid_share: Annotated[float, Field(gt=0, lt=1)] = 0.005
    """documents held out"""
    valid: list[File] = []
    """files held out, instead of a share of text"""
    smoothing: Annotated[float, Field(gt=0, le=1)] = 0.7
    """several languages: exponent of their size"""
    language: Language = "en"
    """for the rules of Moses"""
    subwords: Subwords = "sentencepiece"
    vocabulary: Count = 32768

    # The model that trainings start from, with its subwords, vocabulary, lower, size and positions
    start: File = ABSENT
    """a folder of transformers, `diet-fairseq import hf` or `export hf`, a run or its checkpoint"""
    schemes: Filled[Unique[Scheme]] | Filled[dict[StartLabel, Scheme]] = ABSENT
    """beside start, instead of models: list of schemes, or label -> 'SCHEME [options of
    fairseq-train]'; start: the model's own positions"""

    # Models: one for each label and seed
    models: Filled[dict[Label, Model | EarlierCheckpoint]] = {"diet_rel": "bert_diet_rel"}
    """label -> 'bert_SCHEME [options of fairseq-train]', also roberta_SCHEME, electra_SCHEME"""
    user_dir: File | None = None
    """a package of your own, fairseq's --user-dir: it registers position schemes"""
    size: Literal["tiny", "small", "base", "large"] = "tiny"
    objective: Literal["masked_lm", "nsp", "electra"] = "masked_lm"
    pretraining_seeds: Seeds = [1]

    # Pretraining
    length: Length = 128
    """tokens of a sample"""
    positions: Length | None = None
    """of the model's tables; null: length"""
    updates: Count = 1000
    """steps of the optimizer, not epochs"""
    batch: Count = 32
    """samples of an update, on any number of GPUs"""
    learning_rate: Amount = 0.003
    """at the end of warm-up; with start: 0.00005, and 0 trains nothing"""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """share of the updates; then linearly to 0; with start: 0.06"""
    optimizer: Text = "fused_adamw --adam-betas '(0.9, 0.98)' --adam-eps 1e-6"
    weight_decay: Amount = 0.01
    clip_norm: Amount = 1.0
    """0: none"""
    options: Text = ""
    """more options of fairseq-train, for all models"""
    save_interval: Count = 250
    """updates between checkpoints"""
    validate_interval: Count = 100
    """updates"""
    keep: Annotated[int, Field(ge=-1)] = 1
    """checkpoints; -1: all"""

    # Fine-tuning
    tasks: dict[Annotated[Name, excludes("questions")], Task] = {}
    """label -> folder of its files, and settings of its own"""
    questions: Questions = {}  # type: ignore[assignment]
    """extractive question answering: what is trained on and tested on"""
    downloads: dict[File, Download] = {}
    """file of tasks or questions -> where it is published; existing files are not downloaded"""
    tuning: Tuning = Tuning()
    """of all tasks and questions"""

    # Machine: another value trains nothing anew
    gpus: Gpus = "auto"
    """of a pretraining; 0: the CPU; auto: this machine's, divided by them; 1 for a fine-tuning"""
    precision: Precision = "float32"
    """of pretraining; auto: bfloat16 where GPUs or CPU multiply in it; kept once it has begun"""
    samples_per_gpu: Count = 32
    """that fit into memory"""
    threads: Threads = "auto"
