"""A trained policy in formats that need nothing of Herd's: TorchScript and ONNX, with a check of what they compute."""
