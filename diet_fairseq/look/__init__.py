"""What a trained model has learned about positions: numbers, pictures and a page of them."""
