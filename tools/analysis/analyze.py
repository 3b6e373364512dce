"""tools/analyze_data: computes metrics of samples in several processes and joins them (map and reduce)."""
import argparse
import functools
import importlib.util
import multiprocessing
import os

from failure import Failure, suggestion

EXAMPLES = """Metrics of the samples of training data, for curricula and dynamic batches (docs/data_efficiency.md).

    tools/analyze_data train.safetensors metrics                          # lengths of samples: metrics/seqlen
    tools/analyze_data train.bin metrics --seq 1024 --metrics vocabularyrarity
    tools/analyze_data train.safetensors metrics --metrics seqlen,mine --function mine=my_metrics.py:count_verbs

The data are the files of data.train (.safetensors, .npz, .npy; a stream of tokens with --seq and --dtype, as
data.seq_len and data.dtype). Each metric becomes a directory of index files as DeepSpeed's analyzer writes them."""
TOKENS, MASKS = ("input_ids", "tokens"), ("attention_mask", "mask")
ROWS = 4096  # samples that are in memory at once


def parser():
    made = argparse.ArgumentParser(prog="tools/analyze_data", description=EXAMPLES, allow_abbrev=False,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.error = lambda message: (_ for _ in ()).throw(Failure(64, f"{message} (see tools/analyze_data --help)"))
    made.add_argument("paths", nargs="+", metavar="IN", help="data files, then the directory of the metrics")
    made.add_argument("--metrics", default="seqlen", metavar="NAME,...", help="seqlen: tokens up to the last one that is not "
                      "padding; vocabularyrarity: the sum of -log of each token's share of all tokens, rounded; or names of "
                      "--function (default: seqlen)")
    made.add_argument("--function", action="append", default=[], metavar="NAME=FILE.py:FUNCTION", help="a metric of your own: "
                      "FUNCTION(arrays) gets NumPy arrays of some samples by name and returns an integer for each sample")
    made.add_argument("--array", metavar="NAME", help="the array with the tokens (default: input_ids)")
    made.add_argument("--pad", type=int, metavar="ID", help="the token that is padding at the end of a sample, where the data "
                      "has no mask")
    made.add_argument("--seq", type=int, help="of a stream of tokens: tokens of a sample")
    made.add_argument("--dtype", default="uint16", choices=["uint8", "uint16", "uint32", "int32", "int64"],
                      help="of a stream of tokens (default: uint16)")
    made.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="processes (default: one per core)")
    return made


class Analysis:
    """What a worker needs: the data and how to measure it."""

    def __init__(self, samples, options):
        self.samples, self.pad = samples, options.pad
        self.tokens = find_tokens(samples, options.array)
        self.mask = next((name for name in MASKS if name in samples.arrays and is_row(samples.arrays[name])), None)
        self.functions = dict(function_of(each) for each in options.function)
        self.shares = None  # of each token, for the rarity

    def rows(self, name, begin, end):
        return self.samples.arrays[name].rows(begin, end)

    def measure(self, metric, begin, end):
        import numpy
        if metric in self.functions:
            path, name = self.functions[metric]
            arrays = {each: self.rows(each, begin, end) for each in self.samples.arrays}
            found = numpy.asarray(load_function(path, name)(arrays))
            if found.shape != (end - begin,) or found.dtype.kind not in "iu":
                raise Failure(65, f"{path}:{name} must return {end - begin} integers for so many samples, not "
                              f"{found.dtype}{list(found.shape)}")
            return found.astype(numpy.int64)
        if metric == "seqlen":
            return self.lengths(begin, end)
        tokens, counts = self.rows(self.tokens, begin, end).astype(numpy.int64), self.is_counted(begin, end)
        rarity = -numpy.log(self.shares, where=self.shares > 0, out=numpy.zeros(len(self.shares)))
        return numpy.rint((rarity[tokens] * counts).sum(1)).astype(numpy.int64)

    def lengths(self, begin, end):
        import numpy
        counts = self.is_counted(begin, end)
        last = counts.shape[1] - numpy.argmax(counts[:, ::-1], 1)
        return numpy.where(counts.any(1), last, 1).astype(numpy.int64)

    def is_counted(self, begin, end):
        """Which positions of samples are not padding."""
        import numpy
        if self.mask is not None:
            return self.rows(self.mask, begin, end) != 0
        tokens = self.rows(self.tokens, begin, end)
        if self.pad is None:
            return numpy.ones(tokens.shape, bool)
        real = tokens != self.pad  # of padding only what has no other token behind it
        return numpy.flip(numpy.logical_or.accumulate(numpy.flip(real, 1), 1), 1)

    def count_tokens(self, begin, end):
        import numpy
        tokens, counts = self.rows(self.tokens, begin, end).astype(numpy.int64), self.is_counted(begin, end)
        if tokens.min() < 0:
            raise Failure(65, f"array '{self.tokens}' has the token {tokens.min()}: ids are not negative")
        return numpy.bincount(tokens[counts])


def is_row(array):
    return len(array.sample_shape) == 1


def find_tokens(samples, asked):
    if asked is not None and asked not in samples.arrays:
        raise Failure(64, f"the data has no array '{asked}': it has {', '.join(samples.arrays)}" + suggestion(asked, samples.arrays))
    rows = [name for name, array in samples.arrays.items() if is_row(array) and array.kind in "iu"]
    for name in (asked,) if asked else (*TOKENS, *(rows if len(rows) == 1 else ())):
        if name in rows:
            return name
    if asked:
        raise Failure(65, f"array '{asked}' does not have one row of integers a sample")
    raise Failure(65, f"it is not known which array has the tokens: the data has {', '.join(samples.arrays)}; name one with --array")


def function_of(text):
    name, _, where = text.partition("=")
    path, _, function = where.rpartition(":")
    if not name or not path or not function:
        raise Failure(64, f"--function {text}: write NAME=FILE.py:FUNCTION")
    if not os.path.exists(path):
        raise Failure(66, f"--function {text}: '{path}' does not exist")
    return name, (path, function)


@functools.cache
def load_function(path, name):
    spec = importlib.util.spec_from_file_location("metric_functions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise Failure(65, f"'{path}' has no function '{name}'")
    return getattr(module, name)


def reduce_tokens(parts):
    import numpy
    total = numpy.zeros(max(len(part) for part in parts))
    for part in parts:
        total[:len(part)] += part
    return total / total.sum()


def measure_range(job):
    """In a worker."""
    analysis, metric, begin, end = job
    return analysis.count_tokens(begin, end) if metric is None else analysis.measure(metric, begin, end)


def over_samples(analysis, metric, workers):
    """The results of all ranges of samples, in their order."""
    ranges = [(analysis, metric, at, min(at + ROWS, analysis.samples.count)) for at in range(0, analysis.samples.count, ROWS)]
    if workers == 1 or len(ranges) == 1:
        return [measure_range(each) for each in ranges]
    with multiprocessing.Pool(min(workers, len(ranges))) as pool:
        return pool.map(measure_range, ranges, chunksize=1)


def main(arguments):
    options = parser().parse_args(arguments)
    if len(options.paths) < 2:
        raise Failure(64, "name data files and then the directory of the metrics (see tools/analyze_data --help)")
    if options.workers < 1 or (options.seq is not None and options.seq < 1):
        raise Failure(64, "--workers and --seq must be at least 1")
    from analysis.arrays import Samples, numpy
    from analysis.index_files import write_metric
    analysis = Analysis(Samples(options.paths[:-1], options.seq, options.dtype), options)
    known = ["seqlen", "vocabularyrarity", *analysis.functions]
    for metric in options.metrics.split(","):
        if metric not in known:
            raise Failure(64, f"unknown metric '{metric}'; known: {', '.join(known)}" + suggestion(metric, known))
        if metric == "vocabularyrarity":
            analysis.shares = reduce_tokens(over_samples(analysis, None, options.workers))
        prefix, values = write_metric(options.paths[-1], metric,
                                      numpy.concatenate(over_samples(analysis, metric, options.workers)))
        print(f"{metric}: {analysis.samples.count} samples, {len(values)} values from {values[0]} to {values[-1]}: "
              f"{prefix}_index_to_sample, {prefix}_index_to_metric, {prefix}_sample_to_metric")
