# The runs of results/pretraining/novels-peak.csv, in float32 on one core that ran other programs,
# too, and on an H200 (without --cpu, 14 runs side by side).
#     bash eltec-masked-lm.sh data CHECKOUT TRAIN VALID  # novels; SentencePiece learned from the first 60,000 lines
#     bash eltec-masked-lm.sh data CHECKOUT train.txt.gz valid.txt.gz 2000  # news, from news-text.py
#     bash novels-peak.sh diet_rel 1 --position-peak 6   # scheme, seed, options
set -euo pipefail
OMP_NUM_THREADS=1 fairseq-train data-bin --user-dir diet_fairseq --cpu --arch "roberta_$1_tiny" \
    --seed "$2" "${@:3}" --task masked_lm --sample-break-mode complete --criterion masked_lm \
    --tokens-per-sample 128 --max-positions 512 --batch-size 32 --optimizer fused_adamw \
    --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1.0 --lr 0.003 \
    --lr-scheduler linear_ratio --warmup-ratio 0.1 --max-update 400 --num-workers 0 --no-save \
    --validate-interval-updates 100 --max-valid-steps 30 --log-format json --log-interval 20
