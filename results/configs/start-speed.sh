# The measurement of results/performance/start.csv: updates of the demo's model, from a start and from nothing, in turn.
#     snakemake -s examples/Snakefile --configfile examples/adapt/config.yaml -c all  # after make demo
#     bash start-speed.sh adapt > start.csv
set -euo pipefail
echo 'start,"words/s"'
for round in 1 2; do
    for start in none model; do
        from="--finetune-from-model $1/start/model.pt"
        [ "$start" = none ] && from=""
        rm -rf speed
        OMP_NUM_THREADS=1 fairseq-train "$1/data-bin" --user-dir diet_fairseq --cpu -s en -t de \
            $(cat "$1/start/positions.txt" "$1/start/options.txt") $from --optimizer fused_adamw \
            --criterion fused_label_smoothed_cross_entropy --lr 0.0002 --max-tokens 1500 --max-update 60 \
            --disable-validation --no-save --num-workers 0 --save-dir speed --log-format json --log-interval 10 \
            > speed.log 2>&1
        python -c "
import re, statistics
rates = [float(r) for r in re.findall(r'\"wps\": \"([\d.]+)\"', open('speed.log').read())]
print('$start', statistics.median(rates), sep=',')"
    done
done
