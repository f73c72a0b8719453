# The swaps of results/translation/multi30k-swapped.csv, from a checkout of commit f0f9378, in bfloat16 on a CPU.
# data/bin: Multi30k, pairs of at most 15 words a side (23,674; valid 823), 4,000 joint unigram subwords
# (SentencePiece), fairseq-preprocess --joined-dictionary; test: the 835 such pairs of test_2016_flickr; test1: 1,000
# pairs with more words, those of test_2016_flickr first to draw from, then of val and train (random.Random(1).shuffle).
#     bash multi30k-swapped.sh base                 # 2,000 updates of fairseq's own transformer
#     bash multi30k-swapped.sh rope                 # sinusoidal (as `stock`), rope, diet_rel, t5, alibi, none: 400 more
set -euo pipefail
tiny="--encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4
    --decoder-layers 4 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4"
common="data/bin --user-dir diet_fairseq --cpu --bf16 --source-lang en --target-lang de --share-all-embeddings
    --optimizer fused_adamw --adam-betas (0.9,0.98) --adam-eps 1e-9 --criterion fused_label_smoothed_cross_entropy
    --label-smoothing 0.1 --dropout 0.3 --lr-scheduler inverse_sqrt --max-tokens 4096 --no-epoch-checkpoints
    --max-source-positions 256 --max-target-positions 256 --seed 1"
if [ "$1" = base ]; then
    fairseq-train $common --arch transformer $tiny --lr 0.004 --warmup-updates 400 --max-update 2000 --save-dir base
    exit
fi
arch="transformer_$1_tiny"
[ "$1" = stock ] && arch="transformer $tiny"
fairseq-train $common --arch $arch --finetune-from-model base/checkpoint_last.pt --lr 0.001 --warmup-updates 40 \
    --max-update 400 --save-interval-updates 40 --save-dir "$1"
for part in test test1; do
    fairseq-generate data/bin --user-dir diet_fairseq --cpu --path "$1/checkpoint_last.pt" --gen-subset $part \
        --beam 5 --lenpen 1 --max-tokens 4000 --remove-bpe sentencepiece
done
