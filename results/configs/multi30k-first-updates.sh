# The first updates of Multi30k, results/translation/multi30k-first-updates.csv: prepared and trained with 0.2 (commit
# bbe33c5) and with examples/multi30k (commit 3931a7c). Prepared by
#     diet-fairseq translation prepare en de --corpus multi30k --from-dir FOLDER                    # 0.2
#     snakemake -s examples/Snakefile --configfile examples/multi30k/config.yaml -j 1 data          # the workflow
# both have the same dictionaries, SentencePiece model and binarised text, byte for byte. Then, with either checkout:
OMP_NUM_THREADS=1 fairseq-train multi30k/en-de/data-bin --user-dir diet_fairseq --arch transformer_diet_rel_tiny \
    --source-lang en --target-lang de --share-all-embeddings --optimizer fused_adamw --adam-betas '(0.9, 0.98)' \
    --adam-eps 1e-9 --lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 400 \
    --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 4096 --update-freq 1 \
    --max-update 20 --seed 1 --cpu --bf16 --no-save --disable-validation --log-format json --log-interval 1 \
    --skip-invalid-size-inputs-valid-test --num-workers 0
