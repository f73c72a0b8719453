"""The commands of `diet-fairseq`, one per file."""
