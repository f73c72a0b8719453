# One training of results/translation/tatoeba-learning-rates.csv, from a checkout of commit bbe33c5:
#     bash tatoeba-learning-rates.sh ARCH RATE SEED UPDATES
# The folder data-bin is made from the 156,839 pairs of Tatoeba, English to German: SentencePiece, unigram, 8,000
# pieces of both sides together, character coverage 1.0, then fairseq-preprocess --joined-dictionary.
# ARCH is transformer_<scheme>_tiny; the rows "stock" have fairseq's `--arch transformer` with _tiny's sizes.
OMP_NUM_THREADS=1 fairseq-train data-bin --user-dir diet_fairseq --arch "$1" --lr "$2" --seed "$3" --max-update "$4" \
    --source-lang en --target-lang de --share-all-embeddings --bf16 --cpu --dropout 0.1 --max-tokens 4096 \
    --optimizer fused_adamw --adam-betas '(0.9, 0.98)' --adam-eps 1e-9 --lr-scheduler inverse_sqrt \
    --warmup-updates 400 --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1 \
    --save-dir "runs/$1-lr$2-s$3" --save-interval-updates 250 --keep-interval-updates 5 --no-epoch-checkpoints \
    --log-format json --log-interval 50 --skip-invalid-size-inputs-valid-test --num-workers 0
