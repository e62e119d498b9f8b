"""Exports a trained policy with torch.export or as ONNX for use without Herd, and compares the outputs."""
