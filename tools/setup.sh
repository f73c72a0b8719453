#!/usr/bin/env bash
# Makes $VENV with PyTorch $TORCH, fairseq and this package (editable). fairseq has a wheel for Python 3.12,
# and is compiled for others.
# Called by the Makefile. An interrupted run can be started again: steps already done are quick.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."

say() { echo "set-up: $*"; }
fail() { echo "set-up failed: $*" >&2; exit 1; }

step() { # step WORDS COMMAND...: what the command prints goes to the log
    say "$1"
    "${@:2}" >>"$log" 2>&1 && return
    local end
    end=$(tail -n 15 "$log")
    echo "$end" >&2
    case $end in
    *NewConnectionError* | *ConnectTimeout* | *ProxyError* | *'name resolution'*)
        fail "pip could not reach its package index: is there a network? Then run this again." ;;
    *'No space left'*) fail "the disk is full (up to 3 GB are needed, 10 with CUDA)." ;;
    *) fail "${1%% (*} could not be installed. The end of the log is above, all of it in $log" ;;
    esac
}

works() { # works PYTHON STATEMENT
    "$1" -c "$2" >/dev/null 2>&1
}

# --- what must be there, before the long work -----------------------------------------------

candidates=(python3.12 python3 python3.13 python3.11)
[ "${PYTHON:-}" ] && candidates=("$PYTHON")
python='' found=''
for candidate in "${candidates[@]}"; do
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case $version in
    3.11 | 3.12 | 3.13) python=$candidate && break ;;
    *) found+="; $candidate is $version" ;;
    esac
done
[ "$python" ] || fail "Python 3.11, 3.12 or 3.13 is needed${found:-; there is no ${PYTHON:-python3}}." \
    "Install one, or name one: make setup PYTHON=/path/to/python3.12"

works "$python" 'import venv, ensurepip' ||
    fail "$python has no venv module. On Debian and Ubuntu: apt install python$version-venv"

has_wheel=''
[ "$version" = 3.12 ] && has_wheel=yes

[ "$has_wheel" ] || command -v "${CXX:-g++}" >/dev/null ||
    fail "there is no C++ compiler (${CXX:-g++}), and fairseq is compiled for Python $version." \
        "On Debian and Ubuntu: apt install g++. For Python 3.12 nothing is compiled."

[ "$has_wheel" ] || works "$python" 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' ||
    fail "$python has no C headers (Python.h), and fairseq is compiled for Python $version." \
        "On Debian and Ubuntu: apt install python$version-dev"

# --- the environment ------------------------------------------------------------------------

# Two set-ups at once would install over each other. The lock ends with this process.
exec 9>"$VENV.lock"
! command -v flock >/dev/null || flock --nonblock 9 ||
    fail "another set-up is making $VENV: wait for it, or name another folder with VENV=."

# An environment that is incomplete, was moved, or has another Python is created again.
if ! { "$VENV/bin/python" -m pip --version && grep -F "$(cd "$VENV" && pwd)" "$VENV/bin/activate"; } >/dev/null 2>&1 ||
    { [ "${PYTHON:-}" ] && ! works "$VENV/bin/python" "import sys; assert '%d.%d' % sys.version_info[:2] == '$version'"; }; then
    say "making $VENV with Python $version"
    "$python" -m venv --clear "$VENV" || fail "$python -m venv $VENV"
fi
py=$VENV/bin/python
log=$VENV/set-up.log
: >"$log"
pip=("$py" -m pip --disable-pip-version-check --no-input install)

# Later installations must not replace this PyTorch. fairseq's old build was tried only with
# setuptools below 81.
printf '%s\n' "torch==$TORCH" 'setuptools<81' >"$VENV/constraints.txt"
pip+=(-c "$VENV/constraints.txt")

size='190 MB'
if ! command -v nvidia-smi >/dev/null && ! works "$py" 'import torch'; then
    size='190 MB, or several GB if pip knows no CPU build: see the top of the Makefile'
fi
step "PyTorch $TORCH ($size)" "${pip[@]}" "torch==$TORCH" numpy cython setuptools wheel

# The compiled parts of fairseq that this package needs. The parts that are compiled against PyTorch (libbase,
# libnat) are only for BASE layers and for models that are not autoregressive.
imports='import torch, fairseq.data.data_utils_fast, fairseq.data.token_block_utils_fast'
fairseq=("${pip[@]}" fairseq-fixed==0.12.3.1)
if [ "$has_wheel" ]; then
    step "fairseq (a wheel: nothing is compiled)" "${fairseq[@]}"
else
    # Without isolation fairseq is compiled against the PyTorch above, not against a second one that pip would
    # download. With CUDA_HOME it would also compile kernels that nothing here calls.
    unset CUDA_HOME
    fairseq+=(--no-build-isolation --no-binary fairseq-fixed)
    origin='compiled here: 3 to 5 minutes'
    wheel=fairseq_fixed-0.12.3.1-cp${version/./}
    ! "$py" -m pip cache list fairseq_fixed 2>/dev/null | grep -qF "$wheel" ||
        origin="pip's cache has it: nothing is compiled"
    ! works "$py" "$imports" || origin='it is here'
    step "fairseq ($origin)" "${fairseq[@]}"
    # A wheel in pip's cache, or an older installation, may be compiled against another NumPy.
    works "$py" "$imports" ||
        step "fairseq again (compiled here: 3 to 5 minutes)" \
            "${fairseq[@]}" --no-cache-dir --force-reinstall --no-deps
fi
works "$py" "$imports" || {
    reason=$("$py" -c "$imports" 2>&1 | tail -n 1) || :
    fail "fairseq is installed, but does not run with PyTorch $TORCH ($reason)." \
        "Remove $VENV and run this again; the whole log is $log"
}
step "diet_fairseq and its tools" "${pip[@]}" --no-build-isolation --editable '.[dev]'
# fairseq requires torchaudio, which only speech models need. With a CPU build of PyTorch its import fails, and so
# does the import of transformers. Each step above can install it again, so it is removed last.
works "$py" 'import torchaudio' || step "no torchaudio" "$py" -m pip uninstall --yes torchaudio
say "done. '. $VENV/bin/activate' puts fairseq-train and the other commands on your PATH." \
    "From another folder: --user-dir $PWD/diet_fairseq"
