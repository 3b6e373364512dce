#!/usr/bin/env python3
"""Writes the loss of direct preference optimization as a TorchScript file: forward(log-probabilities of the policy, those of the
reference), both [pairs, 2], the preferred answer first."""
import argparse

import torch


class Preference(torch.nn.Module):
    def __init__(self, beta: float):
        super().__init__()
        self.beta = beta

    def forward(self, policy, reference):
        gain = policy - reference
        return -torch.nn.functional.logsigmoid(self.beta * (gain[:, 0] - gain[:, 1])).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", help="OUT.pt")
    parser.add_argument("--beta", type=float, default=0.1)
    options = parser.parse_args()
    torch.jit.script(Preference(options.beta)).save(options.out)


if __name__ == "__main__":
    main()
