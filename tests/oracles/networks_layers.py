"""The layers of IMPALA's Fig. 3 (arXiv:1802.01561) in float64, one output number at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Layer = tuple[Array, Array]


def relu(x: Array) -> Array:
    return np.where(x > 0, x, 0.0)


def convolution(images: Array, layer: Layer, *, stride: int = 1, padding: int = 0) -> Array:
    """[N, C, H, W] with weight [O, C, K, K]."""
    weight, bias = layer
    kernel = weight.shape[2]
    padded = np.zeros((*images.shape[:2], images.shape[2] + 2 * padding, images.shape[3] + 2 * padding))
    padded[:, :, padding : padding + images.shape[2], padding : padding + images.shape[3]] = images
    height, width = ((size - kernel) // stride + 1 for size in padded.shape[2:])
    out = np.zeros((len(images), len(weight), height, width))
    for n, o, i, j in np.ndindex(out.shape):
        patch = padded[n, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
        out[n, o, i, j] = bias[o] + np.sum(patch * weight[o])
    return out


def deconvolution(images: Array, layer: Layer, *, stride: int = 1) -> Array:
    """[N, C, H, W] with weight [C, O, K, K]: each pixel is spread over a square of K."""
    weight, bias = layer
    kernel = weight.shape[2]
    count, channels, height, width = images.shape
    out = np.zeros((count, weight.shape[1], (height - 1) * stride + kernel, (width - 1) * stride + kernel))
    for n, c, i, j in np.ndindex(count, channels, height, width):
        out[n, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel] += images[n, c, i, j] * weight[c]
    return out + bias[:, None, None]


def max_pool(images: Array) -> Array:
    """3x3/2, padding 1."""
    count, channels, height, width = images.shape
    out = np.empty((count, channels, (height + 1) // 2, (width + 1) // 2))
    for n, c, i, j in np.ndindex(out.shape):
        out[n, c, i, j] = images[n, c, max(2 * i - 1, 0) : 2 * i + 2, max(2 * j - 1, 0) : 2 * j + 2].max()
    return out


def residual_block(images: Array, first: Layer, second: Layer) -> Array:
    inner = convolution(relu(images), first, padding=1)
    return images + convolution(relu(inner), second, padding=1)


def dense(images: Array, layer: Layer) -> Array:
    """Weight [O, H * W * C] over images [N, C, H, W], pixel by pixel with the channels of a pixel side by side."""
    weight, bias = layer
    out = np.tile(bias, (len(images), 1))
    for n, c, i, j in np.ndindex(images.shape):
        column = (i * images.shape[3] + j) * images.shape[1] + c
        out[n] += images[n, c, i, j] * weight[:, column]
    return out


def strided_torso(frames: NDArray[np.uint8], layers: list[tuple[Layer, int]], last: Layer) -> Array:
    images = frames / 255.0
    for layer, stride in layers:
        images = relu(convolution(images, layer, stride=stride))
    return relu(dense(images, last))


def deep_torso(frames: NDArray[np.uint8], sections: list[tuple[Layer, list[tuple[Layer, Layer]]]], last: Layer) -> Array:
    images = frames / 255.0
    for layer, blocks in sections:
        images = max_pool(convolution(images, layer, padding=1))
        for first, second in blocks:
            images = residual_block(images, first, second)
    return relu(dense(relu(images), last))


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def lstm_step(x: Array, hidden: Array, cell: Array, weights: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """One sample: x [I], hidden and cell [H]; weights W [4H, I], U [4H, H], b [4H] with gates in the order i, f, g, o."""
    gates = weights[0] @ x + weights[1] @ hidden + weights[2]
    i, f, g, o = np.split(gates, 4)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def lstm_with_resets(inputs: Array, reset: NDArray[np.bool_], state: Array, weights: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """inputs [T, B, I], state [B, 2, H] -> outputs [T, B, H], state after the last row."""
    num_rows, batch, _ = inputs.shape
    outputs, final = np.empty((num_rows, batch, state.shape[2])), state.copy()
    for b in range(batch):
        hidden, cell = state[b]
        for t in range(num_rows):
            if reset[t, b]:
                hidden, cell = np.zeros_like(hidden), np.zeros_like(cell)
            hidden, cell = lstm_step(inputs[t, b], hidden, cell, weights)
            outputs[t, b] = hidden
        final[b] = hidden, cell
    return outputs, final


def read_instruction(ids: list[int], embedding: Array, weights: tuple[Array, Array, Array], max_words: int) -> Array:
    """The LSTM's output after the last of at most ``max_words`` words; zeros without words."""
    size = weights[1].shape[1]
    hidden, cell = np.zeros(size), np.zeros(size)
    for word in [i for i in ids[:max_words] if i != 0]:
        hidden, cell = lstm_step(embedding[word], hidden, cell, weights)
    return hidden
