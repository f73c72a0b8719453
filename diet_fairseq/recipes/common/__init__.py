"""What the recipes share: text, stages, subwords, fairseq's programs, grids of runs."""
