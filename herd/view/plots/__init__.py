"""Draws learning curves of runs, and writes the numbers behind them. Needs no torch; matplotlib is loaded only for drawing."""
