"""Exports a trained policy as TorchScript or ONNX for use without Herd, and compares the outputs."""
