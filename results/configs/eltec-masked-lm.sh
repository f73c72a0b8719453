# The runs of results/pretraining/eltec-1000-updates.csv, in bfloat16 on one core of an AMD EPYC.
#     bash eltec-masked-lm.sh data CHECKOUT TRAIN VALID [PIECES]  # SentencePiece (8,000), data-bin; texts of ELTeC-eng
#     bash eltec-masked-lm.sh rope 1                     # scheme, seed
set -euo pipefail
if [ "$1" = data ]; then
    scripts="$2/examples/scripts"
    gunzip -c "$3" > train.txt
    gunzip -c "$4" > valid.txt
    python "$scripts/learn_subwords.py" sentencepiece sentencepiece.model --text train.txt --languages en --size "${5:-8000}"
    for split in train valid; do
        python "$scripts/encode.py" sentencepiece sentencepiece.model --text en $split.txt encoded.$split \
            --split --longest 126 --workers 2
    done
    fairseq-preprocess --only-source --trainpref encoded.train --validpref encoded.valid --nwordssrc "${5:-8000}" \
        --destdir data-bin --workers 2
    exit
fi
OMP_NUM_THREADS=1 fairseq-train data-bin --user-dir diet_fairseq --cpu --bf16 --arch "roberta_$1_tiny" --seed "$2" \
    --task masked_lm --sample-break-mode complete --criterion masked_lm --tokens-per-sample 128 --max-positions 512 \
    --batch-size 32 --optimizer fused_adamw --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 \
    --clip-norm 1.0 --lr 0.003 --lr-scheduler linear_ratio --warmup-ratio 0.1 --max-update 1000 --num-workers 0 \
    --save-dir "runs/$1-s$2" --save-interval-updates 500 --max-valid-steps 60 --keep-interval-updates 1 \
    --no-epoch-checkpoints --log-format json --log-interval 50 --log-file "runs/$1-s$2.log"
