# The swaps of results/translation/tatoeba-swapped.csv, from a checkout, in float32 on one core that ran other
# programs, too. The workflow of examples/tatoeba makes tatoeba/data-bin (snakemake ... -- data); test/short, middle and
# long are the first 500 pairs of its test set whose sources have at most 8, 9 to 12, and 13 words or more.
#     bash tatoeba-swapped.sh base                 # 3 epochs (1,308 updates) of fairseq's own transformer
#     bash tatoeba-swapped.sh rope                 # stock (no swap), rope, diet_rel, t5, alibi: 300 updates more
set -euo pipefail
tiny="--encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4
    --decoder-layers 4 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4"
common="tatoeba/data-bin --user-dir diet_fairseq --cpu --source-lang en --target-lang de --share-all-embeddings
    --optimizer fused_adamw --adam-betas (0.9,0.98) --adam-eps 1e-9 --criterion fused_label_smoothed_cross_entropy
    --label-smoothing 0.1 --dropout 0.1 --lr-scheduler inverse_sqrt --max-tokens 4096 --no-epoch-checkpoints
    --max-source-positions 256 --max-target-positions 256 --seed ${SEED:-1} --log-format simple --log-interval 50"
score() { # score CHECKPOINT UPDATES
    for part in short middle long; do
        diet-fairseq translate "$1" --data tatoeba/data-bin --subwords tatoeba/subwords/sentencepiece.model \
            --threads 1 <"test/$part.en" >"$1.$part"
        for metric in bleu chrf; do
            echo "$name,$2,$part,$metric,$(sacrebleu "test/$part.de" -i "$1.$part" -m $metric -b -w 2)"
        done
    done
}
name="$1"
if [ "$name" = base ]; then
    fairseq-train $common --arch transformer $tiny --lr 0.004 --warmup-updates 400 --max-epoch 3 --save-dir base
    exit
fi
arch="transformer_${name}_tiny"
[ "$name" = stock ] && arch="transformer $tiny"
start="--finetune-from-model base/checkpoint_last.pt --warmup-updates 30"
folder="$name-${SEED:-1}"
# right after the swap: one update at a learning rate of almost 0
fairseq-train $common --arch $arch $start --lr 1e-9 --max-update 1 --save-dir "$folder-0"
fairseq-train $common --arch $arch $start --lr 0.001 --max-update 300 --save-interval-updates 30 --save-dir "$folder"
score "$folder-0/checkpoint_last.pt" 0
score "$folder"/checkpoint_*_30.pt 30
score "$folder/checkpoint_last.pt" 300
