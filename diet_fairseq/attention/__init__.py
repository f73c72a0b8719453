"""The attention equation with position schemes, and quicker ways to compute it; torch only."""
