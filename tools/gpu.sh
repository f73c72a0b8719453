#!/usr/bin/env bash
# Measures on a GPU in parts of at most 9 minutes:
#
#     OUT=FOLDER bash tools/gpu.sh kernels        # attention alone: every kernel and tile, cuDNN beside them
#     OUT=FOLDER bash tools/gpu.sh schemes        # diet_abs, tupe_a, tupe_r, shaw: their kernels, `none` beside them
#     OUT=FOLDER bash tools/gpu.sh dropout        # steps with attention dropout beside steps without it
#     OUT=FOLDER bash tools/gpu.sh steps          # steps of BERT-base: every scheme and backend beside `none`
#     OUT=FOLDER DATA=DATA bash tools/gpu.sh translation    # translation models beside fairseq's: speed, memory
#     OUT=FOLDER DATA=DATA bash tools/gpu.sh convergence    # whole trainings side by side, scores, curves
#     OUT=FOLDER bash tools/gpu.sh tests          # the tests that need a GPU
#
# Parts append to files in OUT as they go, so that a part that is cut loses only its end: at most 8 files, two
# of which, environment.txt and gpu.csv (clocks and load, every 5 seconds), all parts share.
#
# Before, on a machine with a network, once (about 3 minutes):
#
#     bash tools/gpu_prepare.sh bench/gpu-data TATOEBA FLICKR
#
# and then, on the machine with the GPU, in this order, within 35 minutes together:
#
#     export OUT=bench/gpu WHEELS=bench/gpu-data/wheels DATA=bench/gpu-data/tatoeba
#     MINUTES=5 bash tools/gpu.sh schemes
#     MINUTES=5 bash tools/gpu.sh dropout
#     MINUTES=5 SIZE=_iwslt_de_en bash tools/gpu.sh translation
#     MINUTES=5 SIZE=_wmt_en_de bash tools/gpu.sh translation
#     MINUTES=5 bash tools/gpu.sh tests
#     MINUTES=5 BEFORE=bench/gpu-data/before bash tools/gpu.sh kernels
#     MINUTES=5 bash tools/gpu.sh steps
#
# and in a further half hour, with as many EPOCHS as fit by the words a second of `translation`:
#
#     for seed in 1 2 3; do SEEDS=$seed bash tools/gpu.sh convergence; done
#
# MINUTES (9) is a part's time, a whole number. SIZE (_iwslt_de_en) is the suffix of the architectures of `translation`. DEVICE=cpu rehearses a part at tiny size without a GPU.
# BEFORE names a folder with an earlier diet_fairseq that `kernels` measures beside this one. `convergence` takes
# SCHEMES (stock shaw diet_rel diet_abs rope t5), SEEDS (1), EPOCHS (20) and OPTIONS of fairseq-train; its
# checkpoints stay in RUNS, outside OUT. A rehearsal of it needs few lines in DATA/test.
#
# The environment: $PYTHON (python3) with PyTorch for CUDA, Triton and the packages of setup.py. The script
# installs what it lacks from the folder $WHEELS, without a network. fairseq's own extension libnat, which
# doesn't load beside another PyTorch, is not needed.
set -uo pipefail
[ -z "${OUT:-}" ] || OUT=$(realpath -m "$OUT")
[ -z "${DATA:-}" ] || DATA=$(realpath -m "$DATA")
cd "${BASH_SOURCE[0]%/*}/.."

PARTS='kernels, schemes, dropout, steps, translation, convergence, tests'
part=${1:-}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
minutes=${MINUTES:-9}
deadline=$((SECONDS + 60 * minutes - 15))

fail() { echo "tools/gpu.sh: $*" >&2; exit 2; }

[ "$part" ] || fail "name a part: $PARTS"
case ", $PARTS," in
*", $part,"*) ;;
*) fail "there is no part $part; the parts are $PARTS" ;;
esac
[ "${OUT:-}" ] || fail "OUT must name the folder for the figures: OUT=bench/gpu bash tools/gpu.sh $part"
case $device in cuda | cpu) ;; *) fail "DEVICE must be cuda or cpu, but is $device" ;; esac
case $part in translation | convergence)
    [ "${DATA:-}" ] || fail "DATA must name the folder tatoeba that tools/gpu_prepare.sh makes"
    [ -d "$DATA/data-bin" ] || fail "DATA: $DATA has no folder data-bin: make it with tools/gpu_prepare.sh"
    ;;
esac
mkdir -p "$OUT" || exit 2
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore KINETO_LOG_LEVEL=99
[ "$device" = cuda ] || export TRITON_INTERPRET=1  # our kernels run on the CPU, too

# --- the environment ------------------------------------------------------------------------

if [ "${WHEELS:-}" ]; then
    site=${TMPDIR:-/tmp}/diet_fairseq-site
    export PYTHONPATH=$PYTHONPATH:$site
    [ -e "$site" ] || "$python" -m pip install -q --no-index --no-deps --no-build-isolation \
        --no-compile --target "$site" "$WHEELS"/* || fail "the packages in $WHEELS can't be installed"
fi
missing=$("$python" - <<'PYTHON'
from importlib import import_module

for name in ("torch", "triton", "fairseq", "sacrebleu", "sentencepiece", "scipy", "filelock", "pytest"):
    try:
        import_module(name)
    except Exception as error:
        print(f"{name} ({type(error).__name__}: {error})")
PYTHON
) || fail "$python can't be run: name one with PyTorch in PYTHON"
[ -z "$missing" ] || fail "$python lacks $(echo "$missing" | paste -sd ';'): put them into the folder WHEELS"
"$python" - "$device" >>"$OUT/environment.txt" <<'PYTHON' || fail "PyTorch finds no GPU: DEVICE=cpu rehearses"
import platform
import subprocess
import sys

import torch
import triton

print("Python", platform.python_version(), "PyTorch", torch.__version__, "Triton", triton.__version__)
if sys.argv[1] == "cuda":
    if not torch.cuda.is_available():
        sys.exit(1)
    print(torch.cuda.get_device_name(), "capability", torch.cuda.get_device_capability())
    subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.sm,power.limit", "--format=csv,noheader"])
PYTHON
{ git log -1 --format='commit %h' && git status --short | head -n 20; } >>"$OUT/environment.txt" 2>/dev/null
cat "$OUT/environment.txt"
if [ "$device" = cuda ]; then
    nvidia-smi --query-gpu=timestamp,utilization.gpu,memory.used,clocks.sm,clocks.mem,power.draw,temperature.gpu \
        --format=csv --loop=5 >>"$OUT/gpu.csv" &
    trap "kill $!" EXIT
fi

# --- the parts ------------------------------------------------------------------------------

status=0
run() { # run LOG COMMAND...: within the time that is left; the log grows as the command prints
    local left=$((deadline - SECONDS)) log=$OUT/$1
    shift
    if [ "$left" -lt 5 ]; then
        echo "not started, no time left: $*" | tee -a "$log"
        status=124
        return
    fi
    echo "\$ $*" | tee -a "$log"
    timeout --kill-after=10 "$left" "$@" 2>&1 | tee -a "$log"
    local ended=${PIPESTATUS[0]}
    [ "$ended" = 0 ] || { status=$ended && echo "ended with status $ended" | tee -a "$log"; }
    return "$ended"
}

kernels() {
    local tiny=() what measure=("$python" -m benchmarks.kernels --out "$OUT/kernels.jsonl")
    [ "$device" = cuda ] || tiny=(--device cpu --heads 2 --width 16 --tokens 32 --lengths 32 --calls 1)
    for what in pytorch ours; do # in a process each: a fault of cuDNN's would end all that follows it
        run kernels.md "${measure[@]}" --what "$what" "${tiny[@]}"
    done
    [ -z "${BEFORE:-}" ] || PYTHONPATH=$(realpath "$BEFORE"):$PYTHONPATH PYTHONSAFEPATH=1 \
        run kernels.md "${measure[@]}" --what ours --label before "${tiny[@]}"
}

schemes() { # a process for each length, so that a part that is cut keeps the first
    local length tiny=() backends=(offsets cudnn factors sdpa) measure=("$python" -m benchmarks.device --out "$OUT/schemes.jsonl")
    local lengths=(512 2048) schemes=(none diet_abs tupe_a tupe_r shaw diet_rel) tests='candidate and not dtype0'
    if [ "$device" = cpu ]; then # only the comparison runs our kernels, for one scheme
        tiny=(--device cpu --size tiny --tokens 16 --rounds 1)
        lengths=(8) schemes=(none shaw diet_abs) backends=(factors sdpa) tests='candidate and shaw and dtype2'
    fi
    REHEARSAL=1 run schemes.log "$python" -m pytest -m gpu -p no:cacheprovider -q -k "$tests" tests/attention/test_on_a_gpu.py
    for length in "${lengths[@]}"; do
        run schemes.md "${measure[@]}" --schemes "${schemes[@]}" --backends "${backends[@]}" --rounds 5 \
            --lengths "$length" "${tiny[@]}"
    done
}

dropout() {
    local length rate tiny=() backends=(offsets sdpa) measure=("$python" -m benchmarks.device --out "$OUT/dropout.jsonl")
    local lengths=(512 2048) schemes=(none t5 diet_rel tupe_r shaw) tests='with_dropout'
    if [ "$device" = cpu ]; then # only the comparison runs our kernels, for one scheme
        tiny=(--device cpu --size tiny --tokens 16 --rounds 1)
        lengths=(8) schemes=(none t5) backends=(sdpa) tests='with_dropout and t5'
    fi
    REHEARSAL=1 run dropout.log "$python" -m pytest -m gpu -p no:cacheprovider -q -k "$tests" tests/attention/test_on_a_gpu.py
    for length in "${lengths[@]}"; do
        for rate in 0 0.1; do
            run dropout.md "${measure[@]}" --schemes "${schemes[@]}" --backends "${backends[@]}" --rounds 4 \
                --lengths "$length" --attention-dropout "$rate" "${tiny[@]}"
        done
    done
}

steps() {
    local tiny=() measure=("$python" -m benchmarks.device --out "$OUT/steps.jsonl")
    local schemes=(--schemes none diet_rel t5 alibi tupe_r shaw diet_abs rope) backends
    # the reference is slow, and has its own run at the end
    backends=$("$python" -c "from diet_fairseq.attention.backends import BACKENDS
print(*(name for name in BACKENDS if name != 'reference'))")
    if [ "$device" = cpu ]; then # Triton's interpreter is slow: other parts rehearse our kernels
        tiny=(--device cpu --size tiny --tokens 16 --lengths 8 --rounds 1)
        schemes=(--schemes none diet_rel)
        backends='sdpa cudnn'
    fi
    # do rows of different lengths fit each other?
    run steps.md "${measure[@]}" --schemes none --backends sdpa --rounds 10 \
        --lengths 512 1024 2048 512 1024 2048 "${tiny[@]}"
    # shellcheck disable=SC2086
    run steps.md "${measure[@]}" "${schemes[@]}" --backends $backends --rounds 8 "${tiny[@]}"
    # shellcheck disable=SC2086
    run steps.md "${measure[@]}" "${schemes[@]}" --backends $backends --rounds 4 --attention-dropout 0.1 "${tiny[@]}"
    run steps.md "${measure[@]}" "${schemes[@]}" --backends reference --rounds 4 --lengths 512 "${tiny[@]}"
}

translation() {
    local tiny=() size=${SIZE:-_iwslt_de_en} # stock first and last shows the drift
    [ "$device" = cuda ] || tiny=(--device cpu --rows stock stock+ diet_rel --rounds 1
        --max-tokens 200 --batches 1 --search-tokens 100 --search-batches 1)
    run translation.md "$python" -m benchmarks.translation_gpu "$DATA/data-bin" --size "$size" --rounds 3 \
        --rows stock stock+ diet_rel shaw tupe_r stock --max-tokens 8192 --search-batches 8 \
        --out "$OUT/translation.jsonl" "${tiny[@]}"
}

convergence() {
    local more=() options=${OPTIONS:-} all='stock shaw diet_rel diet_abs rope t5'
    # two minutes remain for averages, translations and scores
    more=(--minutes "$(awk "BEGIN { print ($deadline - $SECONDS - 120) / 60 }")")
    if [ "$device" = cpu ]; then
        more=(--device cpu --size tiny --side-by-side 1)
        all='stock diet_rel'
        options="--max-update 2 --max-tokens 500 $options"
    fi
    read -ra schemes <<<"${SCHEMES:-$all}"
    read -ra seeds <<<"${SEEDS:-1}"
    run convergence.md "$python" -m benchmarks.convergence "$DATA" --runs "${RUNS:-${TMPDIR:-/tmp}/diet_fairseq-runs}" \
        --out "$OUT/convergence.jsonl" --schemes "${schemes[@]}" --seeds "${seeds[@]}" --epochs "${EPOCHS:-20}" \
        "${more[@]}" --options "$options"
}

tests() { # files with the mark only: other tests may need packages that are not here
    local files=()
    mapfile -t files < <(grep -rl --include='test_*.py' 'mark\.gpu' tests)
    if [ "$device" = cuda ]; then
        run tests.log "$python" -m pytest -m gpu -n "${WORKERS:-8}" --dist worksteal -p no:cacheprovider -v \
            --continue-on-collection-errors "${files[@]}"
    else # our kernels in the interpreter and one compiled model; the other tests need CUDA
        run tests.log "$python" -m pytest -m gpu -p no:cacheprovider -q --collect-only "${files[@]}"
        REHEARSAL=1 run tests.log "$python" -m pytest -m gpu -p no:cacheprovider -q \
            -k 'candidate and t5-dtype0 or tile and line-True-0.1 or two_runs and 0.1-True or buckets and offsets or compiled and t5' \
            tests/attention/test_on_a_gpu.py
    fi
}

"$part"
echo "$part: status $status after $SECONDS s"
exit "$status"
