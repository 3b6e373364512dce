"""Writes train.npz: x [4096, 4] and y [4096, 1], a smooth function and a little noise."""
import numpy as np

random = np.random.default_rng(0)
x = random.uniform(-1, 1, (4096, 4)).astype(np.float32)
y = np.sin(3 * x[:, :1]) * x[:, 1:2] + x[:, 2:3] ** 2 + 0.01 * random.standard_normal((4096, 1)).astype(np.float32)
np.savez("train.npz", x=x, y=y.astype(np.float32))
