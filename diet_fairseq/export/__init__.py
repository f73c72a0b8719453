"""Export of trained models to other libraries; `hf.convert` exports to transformers."""
