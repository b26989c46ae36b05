"""How the product's code is laid out, as figures: `make house`."""
