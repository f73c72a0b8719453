"""All hooks into fairseq's transformer: which scheme acts where, in encoders and decoders."""
