"""``diet-fairseq grid``: rows by seeds, each cell run once, resumable, side by side; then a table.

spec.py (GRID.toml) -> job.py, fine_tuning.py (cells) -> common/cells.py (runs them) -> table.py
"""
