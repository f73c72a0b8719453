"""The commands of `diet-fairseq`, one a file."""
