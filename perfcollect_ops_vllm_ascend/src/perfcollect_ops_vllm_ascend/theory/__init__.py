"""Theory rows of the operators, family by family: axes and what a grid generates along them."""
