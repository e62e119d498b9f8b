"""Learning curves of one run or many, as a picture and as the numbers behind it. Torch-free; matplotlib only when drawing."""
