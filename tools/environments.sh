#!/usr/bin/env bash
# Makes an environment for each Python and PyTorch, runs the tests in it, and prints a row of results/environments.csv.
#
#     bash tools/environments.sh [PYTHON-TORCH ...]         # such as 3.13-2.13.0
#
# They stay in .environments, where logs lie beside them; PYTEST='...' goes to pytest, as in the Makefile.
set -uo pipefail
cd "${BASH_SOURCE[0]%/*}/.."

all=(3.11-2.13.0 3.12-2.13.0 3.13-2.13.0 3.11-2.10.0)
status=0
echo "Python,PyTorch,build,tests,date,note"
for name in "${@:-${all[@]}}"; do
    python=${name%%-*} torch=${name#*-} log=.environments/$name.log
    mkdir -p .environments
    if make test VENV=".environments/$name" PYTHON="python$python" TORCH="$torch" PYTEST="${PYTEST:-}" >"$log" 2>&1; then
        result=$(grep -oE '[0-9]+ passed' "$log" | tail -n 1)
    else
        status=1 result=$(grep -E '^(FAILED|ERROR|set-up failed)|[0-9]+ failed' "$log" | tail -n 1)
    fi
    build=$(".environments/$name/bin/python" -c 'import torch; print("CUDA" if torch.version.cuda else "CPU")' 2>/dev/null)
    echo "$python,$torch,$build,\"${result:-see $log}\",$(date +%Y-%m-%d),"
done
exit "$status"
