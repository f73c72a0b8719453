"""Grids of runs: rows by seeds, each cell trained once, resumable, side by side; then a table."""
