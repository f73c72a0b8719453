#!/usr/bin/env bash
# Makes the folder that the parts of tools/gpu.sh need on a machine without a network:
#
#     bash tools/gpu_prepare.sh FOLDER TATOEBA FLICKR
#
# FOLDER     is made: FOLDER/tatoeba for DATA, FOLDER/wheels for WHEELS, FOLDER/before for BEFORE
# TATOEBA    folder with train, valid and test, each .en.gz and .de.gz (examples/tatoeba/README.md)
# FLICKR     Multi30k's test_2016_flickr without its endings, .en.gz and .de.gz
#
# The corpus is encoded by the workflow of examples/tatoeba. PYTHON (.venv/bin/python) runs it, and fetches the
# wheels for the Python of the other machine, WHEELS_FOR (3.12).
set -euo pipefail
[ $# = 3 ] || { echo "usage: bash tools/gpu_prepare.sh FOLDER TATOEBA FLICKR" >&2; exit 2; }
folder=$(realpath -m "$1") tatoeba=$(realpath "$2") flickr=$(realpath "${3%/*}")/${3##*/}
cd "${BASH_SOURCE[0]%/*}/.."
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
workflow=$(mktemp -d)
trap 'rm -rf "$workflow"' EXIT

# the carried files are few: the workflow's other files stay in its own folder
(
    cd "$workflow"
    "$python" -m snakemake -s "$OLDPWD/examples/Snakefile" --configfile "$OLDPWD/examples/tatoeba/config.yaml" \
        --config folder=tatoeba train="$tatoeba/train" valid="$tatoeba/valid" test="$tatoeba/test" \
        --cores 1 --quiet all -- data
)
rm -rf "$folder/tatoeba"
mkdir -p "$folder/tatoeba/test" "$folder/wheels"
cp -r "$workflow/tatoeba/data-bin" "$workflow/tatoeba/subwords" "$folder/tatoeba"
for language in en de; do
    gzip -dc "$tatoeba/test.$language.gz" >"$folder/tatoeba/test/tatoeba.$language"
    gzip -dc "$flickr.$language.gz" >"$folder/tatoeba/test/flickr.$language"
done

# the package whose `offsets` has a kernel of its own for the gradient of the score
mkdir -p "$folder/before"
git archive 22f2157 diet_fairseq | tar -x -C "$folder/before"

if [ -z "$(ls "$folder/wheels")" ]; then
    # beside the packages that the machine has: scipy, sacrebleu, regex, filelock, pytest
    "$python" -m pip download -q --no-deps --only-binary=:all: --python-version "${WHEELS_FOR:-3.12}" -d "$folder/wheels" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 fairseq-fixed==0.12.3.1 hydra-core==1.3.2 \
        omegaconf==2.3.0 bitarray pydantic pydantic_core annotated_types typing_inspection tensorboardX \
        pytorch_optimizer "sentencepiece>=0.2.3"
    "$python" -m pip wheel -q --no-deps -w "$folder/wheels" antlr4-python3-runtime==4.9.3
fi
du -h --apparent-size -d 1 "$folder"  # with the checkout it must stay below the limit of a transfer
