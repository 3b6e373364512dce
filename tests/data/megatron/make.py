#!/usr/bin/env python3
"""Writes tiny.bin and tiny.idx beside itself with DeepSpeed's own builder (pip install deepspeed, DS_BUILD_OPS=0): two
documents of three sequences, uint16. The stream is 1, 2, ... 11.

    python tests/data/megatron/make.py"""
import os

import numpy
import torch
from deepspeed.runtime.data_pipeline.data_sampling.indexed_dataset import MMapIndexedDatasetBuilder

prefix = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny")
builder = MMapIndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
builder.add_item(torch.tensor([1, 2, 3, 4]))
builder.add_item(torch.tensor([5, 6]))
builder.end_document()
builder.add_item(torch.tensor([7, 8, 9, 10, 11]))
builder.end_document()
builder.finalize(prefix + ".idx")
