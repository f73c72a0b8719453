"""The papers' tables and figures, row by row: what runs them, what came out, what they cost."""
