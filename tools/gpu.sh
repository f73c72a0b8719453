#!/usr/bin/env bash
# Measures on a GPU in parts of at most 9 minutes, the most valuable first:
#
#     OUT=FOLDER bash tools/gpu.sh tests       # the tests that need a GPU
#     OUT=FOLDER bash tools/gpu.sh speed       # every scheme and backend against `none`: a call, a step
#     OUT=FOLDER bash tools/gpu.sh step        # kernels and optimizers of a BERT-base step
#     OUT=FOLDER DATA=DATA-BIN bash tools/gpu.sh training    # one training a row, side by side
#
# Every part appends to files in OUT as it goes, so that a part that is cut loses only its end.
# MINUTES (9) is a part's time, a whole number. DEVICE=cpu rehearses a part on tiny models without a GPU.
#
# The environment: $PYTHON (python3) with PyTorch for CUDA, Triton and the packages of setup.py. The script installs
# what it lacks from the folder $WHEELS (wheels or sdists, no network), which another machine fills,
# here for Python 3.12:
#
#     pip download --no-deps --only-binary=:all: --python-version 3.12 -d WHEELS \
#         --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 fairseq-fixed==0.12.3.1 hydra-core==1.3.2 \
#         omegaconf==2.3.0 bitarray pydantic pydantic_core annotated_types typing_inspection tensorboardX \
#         pytorch_optimizer
#     pip wheel --no-deps -w WHEELS antlr4-python3-runtime==4.9.3
#
# These suffice beside scipy, sacrebleu, sentencepiece, regex, scikit-learn, filelock, pytest and pytest-xdist.
# fairseq's own extension libnat, which doesn't load beside another PyTorch, is not needed.
set -uo pipefail
[ -z "${OUT:-}" ] || OUT=$(realpath -m "$OUT")
[ -z "${DATA:-}" ] || DATA=$(realpath -m "$DATA")
cd "${BASH_SOURCE[0]%/*}/.."

PARTS='tests, speed, step, training'
part=${1:-}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
minutes=${MINUTES:-9}
deadline=$((SECONDS + 60 * minutes - 15))

fail() { echo "tools/gpu.sh: $*" >&2; exit 2; }

[ "$part" ] || fail "name a part: $PARTS"
case ", $PARTS," in
*", $part,"*) ;;
*) fail "there is no part $part: take one of $PARTS" ;;
esac
[ "${OUT:-}" ] || fail "OUT must name the folder for the figures: OUT=bench/gpu bash tools/gpu.sh $part"
case $device in cuda | cpu) ;; *) fail "DEVICE must be cuda or cpu, but is $device" ;; esac
mkdir -p "$OUT" || exit 2
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 KINETO_LOG_LEVEL=99
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
"$python" - "$device" >"$OUT/environment.txt" <<'PYTHON' || fail "PyTorch finds no GPU: DEVICE=cpu rehearses"
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

tests() { # files with the mark only: other tests may need packages that are not here
    local files=()
    mapfile -t files < <(grep -rl --include='test_*.py' 'mark\.gpu' tests)
    if [ "$device" = cuda ]; then
        run tests.log "$python" -m pytest -m gpu -n "${WORKERS:-8}" --dist worksteal -p no:cacheprovider -v \
            --continue-on-collection-errors "${files[@]}"
    else # our kernels in the interpreter and one compiled model; the tests elsewhere need CUDA
        run tests.log "$python" -m pytest -m gpu -p no:cacheprovider -q --collect-only "${files[@]}"
        REHEARSAL=1 run kernels.log "$python" -m pytest -m gpu -p no:cacheprovider -q \
            -k 'candidate and t5 or tile and True or two_runs and 0.1 or buckets and offsets or compiled and t5' \
            tests/attention/test_on_a_gpu.py
    fi
}

speed() {
    local schemes=(none diet_rel t5 diet_abs tupe_a tupe_r shaw rope alibi transformer_xl deberta)
    local backends=(sdpa offsets split factors reference)
    if [ "$device" = cuda ]; then
        run attention.md "$python" -m benchmarks.attention --choices --device cuda --tokens 16384 \
            --lengths 512 2048 1024 4096 --rounds 5
        run step.md "$python" -m benchmarks.device --schemes "${schemes[@]}" --rounds 8 \
            --backends "${backends[@]}" --lengths 512 2048 1024 4096 --out "$OUT"
    else
        run attention.md "$python" -m benchmarks.attention --choices --tokens 16 --lengths 8 --rounds 1
        run step.md "$python" -m benchmarks.device --device cpu --size tiny --tokens 16 --lengths 8 \
            --rounds 1 --schemes none diet_rel --backends sdpa offsets split reference --out "$OUT"
    fi
}

step() {
    local trainers=(adam fused_adamw autocast)
    if [ "$device" = cuda ]; then
        run trainers.md "$python" -m benchmarks.device --schemes none diet_rel --backends sdpa offsets \
            --rounds 8 --lengths 512 2048 --trainers "${trainers[@]}" --out "$OUT/trainers"
    else
        run trainers.md "$python" -m benchmarks.device --device cpu --size tiny --tokens 16 --lengths 8 \
            --rounds 1 --schemes none --backends sdpa --trainers "${trainers[@]}" --out "$OUT/trainers"
    fi
}

training() { # checkpoints stay in $RUNS, and the next call resumes from them
    local runs=${RUNS:-${TMPDIR:-/tmp}/diet_fairseq-runs} more=() jobs=() scheme arch job
    [ "${DATA:-}" ] || fail "DATA must name a folder of fairseq-preprocess"
    read -ra rows <<<"${ROWS:-learned sinusoidal shaw t5 tupe_a tupe_r diet_rel diet_abs}"
    read -ra more <<<"${OPTIONS:---max-update 4000 --lr 0.001}"
    [ "$device" = cuda ] && more+=(--bf16) || more+=(--cpu)
    if [ -e "$DATA/dict.txt" ]; then
        arch=roberta_%s_tiny
        more+=(--task masked_lm --criterion masked_lm --sample-break-mode none)
        more+=(--tokens-per-sample "${LENGTH:-128}" --max-positions "${LENGTH:-128}")
    else
        arch=transformer_%s_tiny
        more+=(--criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1)
    fi
    more+=(--optimizer fused_adamw --lr-scheduler inverse_sqrt --warmup-updates 200 --max-tokens 4096)
    more+=(--keep-last-epochs 1 --num-workers 1 --log-format json --log-interval 50 --seed 1)
    # fairseq then validates, saves and ends by itself
    more+=(--stop-time-hours "$(awk "BEGIN { print ($deadline - $SECONDS - 45) / 3600 }")")
    for scheme in "${rows[@]}"; do
        # shellcheck disable=SC2059
        run "training-$scheme.log" "$python" -m fairseq_cli.train "$DATA" --user-dir diet_fairseq \
            --arch "$(printf "$arch" "$scheme")" --save-dir "$runs/$scheme" "${more[@]}" >/dev/null &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || status=$?; done
    for scheme in "${rows[@]}"; do
        echo "$scheme $(grep -o '{.*"valid_loss".*' "$OUT/training-$scheme.log" | tail -n 1)"
    done | tee "$OUT/training.txt"
}

"$part"
echo "$part: status $status after $SECONDS s"
exit "$status"
