"""What all roads from raw text have in common: text, stages, subwords, commands, cells."""
