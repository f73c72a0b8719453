"""fairseq's encoders and decoders with position schemes in their attention."""
