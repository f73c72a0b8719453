"""Reports on the positions that a trained model has learned: numbers, pictures, an HTML page."""
