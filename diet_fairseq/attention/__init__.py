"""Multi-head attention with positions in every head, and what makes it quick."""
