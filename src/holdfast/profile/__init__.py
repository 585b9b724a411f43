"""What operators of models cost, and how far their numbers deviate."""
