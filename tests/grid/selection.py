"""Which groups of cases are run. The full set takes every model, world, accumulation and precision with the rest taking
turns, and on one model everything with everything. The fast set takes every model at every stage in two of the worlds, and
chooses the rest so that each pair of values of any two dimensions meets as often as the number of rows allows; rows of the
plain model add, in worlds 1 and 4 and in worlds 2 and 3, the combinations that did not come up. Pipelines of stages and meshes with tensor ranks have
rows of their own: in the fast set one for each mesh and model, in the full set for each accumulation and precision
besides."""
import collections
import functools
import itertools
import random

import model_cases
from dimensions import (ACCUMULATIONS, CLIPPINGS, MODELS, MORE_OPTIMIZERS, OPTIMIZERS, PIPELINE_MODELS, PIPELINE_VARIANTS, PIPES, PRECISIONS,
                        TENSOR_MODELS, TENSOR_VARIANTS, TENSORS, VARIANTS, WORLDS, Group)

BASE_MODEL = "plain"
WORLD_PAIRS = ((1, 4), (2, 3))  # as they share a process (CMakeLists.txt)
SAMPLE = 150  # choices that the fast set looks at for each of its rows


def full(worlds):
    rest = itertools.cycle(itertools.product(OPTIMIZERS, CLIPPINGS, VARIANTS))
    chosen = [Group(world, accumulation, clipping, precision, model, optimizer, variant)
              for model, world, accumulation, precision in itertools.product(MODELS, worlds, ACCUMULATIONS, PRECISIONS)
              for optimizer, clipping, variant in [next(rest)]]
    chosen += [Group(world, accumulation, clipping, precision, BASE_MODEL, optimizer, "default")
               for world, accumulation, clipping, precision, optimizer
               in itertools.product(worlds, ACCUMULATIONS, CLIPPINGS, PRECISIONS, [*OPTIMIZERS, *MORE_OPTIMIZERS])]
    chosen += [Group(world, accumulation, CLIPPINGS[0], precision, BASE_MODEL, "AdamW", variant)
               for world, accumulation, precision, variant
               in itertools.product(worlds, ACCUMULATIONS, PRECISIONS, VARIANTS)]
    chosen = [group for group in chosen if group.world in WORLDS or group.world not in PIPES]
    rest = itertools.cycle(itertools.product(OPTIMIZERS, CLIPPINGS, PIPELINE_VARIANTS))
    chosen += [Group(world, accumulation, clipping, precision, model, optimizer, variant, pipe)
               for (world, pipe, model), accumulation, precision
               in itertools.product(meshes_and_models(), ACCUMULATIONS, PRECISIONS)
               for optimizer, clipping, variant in [next(rest)] if world in worlds]
    rest = itertools.cycle(itertools.product(tensor_optimizers(), CLIPPINGS, TENSOR_VARIANTS))
    chosen += [Group(world, accumulation, clipping, precision, model, optimizer, variant, pipe, tensor)
               for (world, tensor, pipe, model), accumulation, precision
               in itertools.product(tensor_meshes_and_models(MODELS), ACCUMULATIONS, PRECISIONS)
               for optimizer, clipping, variant in [next(rest)] if world in worlds]
    return sorted(set(chosen), key=chosen.index)


def fast(worlds):
    """The same rows for every choice of worlds: a world's rows do not depend on which others are run."""
    rows = list(of_every_model())
    for pair in WORLD_PAIRS:
        rows += missing(pair, [row for row in rows if row.world in pair])
    rows += pipelines() + tensors()
    return [row for row in rows if row.world in worlds]


@functools.cache
def of_every_model():
    choices = list(itertools.product(ACCUMULATIONS, CLIPPINGS, PRECISIONS, OPTIMIZERS, VARIANTS))
    seen, rows = collections.Counter(), []
    for model, world in ((model, world) for number, model in enumerate(MODELS) for world in worlds_of(number)):
        sample = random.Random(len(rows)).sample(choices, min(len(choices), SAMPLE))
        groups = [Group(world, accumulation, clipping, precision, model, optimizer, variant)
                  for accumulation, clipping, precision, optimizer, variant in sample]
        best = max(groups, key=lambda group: newest([seen[pair] for pair in pairs(group)]))
        rows.append(best)
        seen.update(pairs(best))
    return rows


def newest(times):
    """By how often its pairs were met before: most new pairs first; among those the pairs that were met least."""
    return times.count(0), -sum(times)


def worlds_of(number):
    """The models share the worlds, that of one rank the least."""
    turns = ((1, 3), (2, 4), (2, 3), (1, 4), (2, 3), (2, 4))
    return [world for world in WORLDS if world in turns[number % len(turns)]]


def meshes_and_models():
    """(world, stages, model) of every pipeline: a model has at least as many layers as there are stages."""
    return [(world, pipe, model) for world, pipes in PIPES.items() for pipe in pipes
            for model, num_layers in PIPELINE_MODELS.items() if num_layers >= pipe]


@functools.cache
def pipelines():
    """Of the fast set: the rest of each row such that most new pairs of values meet."""
    choices = list(itertools.product(ACCUMULATIONS, CLIPPINGS, PRECISIONS, OPTIMIZERS, PIPELINE_VARIANTS))
    seen, rows = collections.Counter(), []
    for world, pipe, model in meshes_and_models():
        if world not in WORLDS:
            continue
        groups = [Group(world, accumulation, clipping, precision, model, optimizer, variant, pipe)
                  for accumulation, clipping, precision, optimizer, variant
                  in random.Random(len(rows)).sample(choices, len(choices))]
        best = max(groups, key=lambda group: newest([seen[pair] for pair in pairs(group, 8)]))
        rows.append(best)
        seen.update(pairs(best, 8))
    return rows


def tensor_optimizers():
    return [name for name in OPTIMIZERS if name != "Muon"]


def tensor_meshes_and_models(models):
    """(world, tensor ranks, stages, model) of every mesh with tensor ranks."""
    return [(world, tensor, pipe, model) for world, meshes in TENSORS.items() for tensor, pipe in meshes
            for model in (models if world in WORLDS or pipe > 1 else TENSOR_MODELS)
            if not model_cases.CASES[model].random and (pipe == 1 or PIPELINE_MODELS.get(model, 0) >= pipe)]


@functools.cache
def tensors():
    """Of the fast set: the rest of each row such that most new pairs of values meet."""
    choices = list(itertools.product(ACCUMULATIONS, CLIPPINGS, PRECISIONS, tensor_optimizers(), TENSOR_VARIANTS))
    seen, rows = collections.Counter(), []
    for world, tensor, pipe, model in tensor_meshes_and_models(TENSOR_MODELS):
        if world not in WORLDS:
            continue
        groups = [Group(world, accumulation, clipping, precision, model, optimizer, variant, pipe, tensor)
                  for accumulation, clipping, precision, optimizer, variant
                  in random.Random(len(rows)).sample(choices, SAMPLE)]
        best = max(groups, key=lambda group: newest([seen[pair] for pair in pairs(group, 9)]))
        rows.append(best)
        seen.update(pairs(best, 9))
    return rows


def missing(worlds, rows):
    """Rows of the plain model, in these worlds by turns, until they have met all that settings() names."""
    groups = [Group(worlds[0], accumulation, clipping, precision, BASE_MODEL, optimizer, variant)
              for accumulation, clipping, precision, optimizer, variant
              in itertools.product(ACCUMULATIONS, CLIPPINGS, PRECISIONS, OPTIMIZERS, VARIANTS)]
    wanted = set().union(*map(settings, groups)).difference(*map(settings, rows))
    for world in itertools.cycle(worlds):
        if not wanted:
            return
        best = max(groups, key=lambda group: len(wanted & settings(group)))
        wanted -= settings(best)
        yield best._replace(world=world)


@functools.cache
def settings(group):
    """What each pair of worlds is to meet by itself: every pair of settings (but optimizers with variants, too many), and
    every optimizer in every precision with and without accumulation."""
    found = {(group.accumulation, group.precision, group.optimizer)}
    of_their_own = {"world", "model"}
    for i, a, j, b in pairs(group):
        names = {Group._fields[i], Group._fields[j]}
        if not names & of_their_own and names != {"optimizer", "variant"}:
            found.add((i, a, j, b))
    return found


@functools.cache
def pairs(group, num_dimensions=7):
    """(dimension, value, dimension, value) of each. Without the number of stages, which is 1 in all rows but those of
    pipelines."""
    return [(*one, *other) for one, other in itertools.combinations(enumerate(group[:num_dimensions]), 2)]
