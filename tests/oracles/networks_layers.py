"""The layers of IMPALA's Fig. 3 (arXiv:1802.01561) in float64, one output at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Layer = tuple[Array, Array]
Norm = tuple[Array, Array] | None
"""Gain and offset of a layer norm; None without one."""


def relu(x: Array) -> Array:
    return np.where(x > 0, x, 0.0)


def convolution(images: Array, layer: Layer, *, stride: int = 1, padding: int = 0) -> Array:
    """[N, C, H, W] convolved with weight [O, C, K, K]."""
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
    """[N, C, H, W] with weight [C, O, K, K]: each pixel is spread over a square of K x K."""
    weight, bias = layer
    kernel = weight.shape[2]
    count, channels, height, width = images.shape
    out = np.zeros((count, weight.shape[1], (height - 1) * stride + kernel, (width - 1) * stride + kernel))
    for n, c, i, j in np.ndindex(count, channels, height, width):
        out[n, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel] += images[n, c, i, j] * weight[c]
    return out + bias[:, None, None]


def max_pool(images: Array) -> Array:
    """3x3/2 with TensorFlow's SAME padding: (ceil(n / 2) - 1) * 2 + 3 - n positions, half of them (rounded down) before the first pixel."""

    def window(index: int, size: int) -> slice:
        before = ((math.ceil(size / 2) - 1) * 2 + 3 - size) // 2
        return slice(max(2 * index - before, 0), 2 * index - before + 3)

    count, channels, height, width = images.shape
    out = np.empty((count, channels, math.ceil(height / 2), math.ceil(width / 2)))
    for n, c, i, j in np.ndindex(out.shape):
        out[n, c, i, j] = images[n, c, window(i, height), window(j, width)].max()
    return out


def rectify(values: Array, norm: Norm = None) -> Array:
    """ReLU of [N, F] or [N, C, H, W], then the layer norm if there is one: over all axes but N, with gain and offset for each unit."""
    if norm is None:
        return relu(values)
    gain, offset = norm
    out = np.empty_like(values)
    for n, image in enumerate(values):
        deviations = image - image.mean()
        for unit in range(len(gain)):
            out[n, unit] = relu(gain[unit] * deviations[unit] / math.sqrt((deviations**2).mean() + 1e-5) + offset[unit])
    return out


def residual_block(images: Array, first: Layer, second: Layer, norms: tuple[Norm, Norm] = (None, None)) -> Array:
    inner = convolution(rectify(images, norms[0]), first, padding=1)
    return images + convolution(rectify(inner, norms[1]), second, padding=1)


def dense(images: Array, layer: Layer) -> Array:
    """Weight [O, H * W * C] applied to images [N, C, H, W], pixel by pixel; the channels of a pixel are adjacent."""
    weight, bias = layer
    out = np.tile(bias, (len(images), 1))
    for n, c, i, j in np.ndindex(images.shape):
        column = (i * images.shape[3] + j) * images.shape[1] + c
        out[n] += images[n, c, i, j] * weight[:, column]
    return out


def pixels(frames: NDArray[np.uint8], layer: Layer, centering: str, *, stride: int = 1, padding: int = 0) -> Array:
    """The first convolution of pixels in [0, 1], by filters or by filters minus their mean. The padding is black."""
    weight, bias = layer
    if centering == "filters":
        weight = np.stack([each - each.mean() for each in weight])
    framed = np.pad(frames, ((0, 0), (0, 0), (padding, padding), (padding, padding))) / 255.0
    return convolution(framed, (weight, bias), stride=stride)


def strided_torso(
    frames: NDArray[np.uint8], layers: list[tuple[Layer, int]], last: Layer, norms: list[Norm], centering: str = "none"
) -> Array:
    (first, stride), *others = layers
    images = rectify(pixels(frames, first, centering, stride=stride), norms[0])
    for (layer, stride), norm in zip(others, norms[1:-1], strict=True):
        images = rectify(convolution(images, layer, stride=stride), norm)
    return rectify(dense(images, last), norms[-1])


def deep_torso(
    frames: NDArray[np.uint8],
    sections: list[tuple[Layer, list[tuple[Layer, Layer, tuple[Norm, Norm]]]]],
    last: Layer,
    norms: tuple[Norm, Norm],
    centering: str = "none",
) -> Array:
    images = np.empty(0)
    for number, (layer, blocks) in enumerate(sections):
        convolved = convolution(images, layer, padding=1) if number else pixels(frames, layer, centering, padding=1)
        images = max_pool(convolved)
        for first, second, of_block in blocks:
            images = residual_block(images, first, second, of_block)
    return rectify(dense(rectify(images, norms[0]), last), norms[1])


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def lstm_step(x: Array, hidden: Array, cell: Array, weights: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """One step of one sample: x [I], hidden and cell [H]; weights W [4H, I], U [4H, H], b [4H] with gates in the order i, f, g, o."""
    gates = weights[0] @ x + weights[1] @ hidden + weights[2]
    i, f, g, o = np.split(gates, 4)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def lstm_with_resets(inputs: Array, reset: NDArray[np.bool_], state: Array, weights: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """inputs [T, B, I], state [B, 2 H], hidden then cell -> outputs [T, B, H], state after the last row."""
    num_rows, batch, _ = inputs.shape
    outputs, final = np.empty((num_rows, batch, state.shape[1] // 2)), state.copy()
    for b in range(batch):
        hidden, cell = np.split(state[b], 2)
        for t in range(num_rows):
            if reset[t, b]:
                hidden, cell = np.zeros_like(hidden), np.zeros_like(cell)
            hidden, cell = lstm_step(inputs[t, b], hidden, cell, weights)
            outputs[t, b] = hidden
        final[b] = np.concatenate([hidden, cell])
    return outputs, final


def read_instruction(ids: list[int], embedding: Array, weights: tuple[Array, Array, Array], max_words: int) -> Array:
    """The LSTM's output after the last of at most ``max_words`` words; zeros without words."""
    size = weights[1].shape[1]
    hidden, cell = np.zeros(size), np.zeros(size)
    for word in [i for i in ids[:max_words] if i != 0]:
        hidden, cell = lstm_step(embedding[word], hidden, cell, weights)
    return hidden
