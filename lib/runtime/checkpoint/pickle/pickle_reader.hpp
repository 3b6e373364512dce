// Reads a Python pickle of protocols 2 to 5 as data: the stack machine of Python's own reader, with opaque records in
// place of imports and calls. LibTorch's torch::jit::Unpickler does not serve here: it reads TorchScript's values only,
// and fails on an OrderedDict with attributes (every state dict), torch.Size, dtypes, numpy scalars and protocols above
// 2, and its recursion overflows the stack for a deeply nested pickle. Any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/checkpoint/pickle/pickle_value.hpp"

namespace dslaunch::runtime::pickle {

struct Limits {
  size_t max_bytes = size_t{1} << 30;  // of the pickle
  size_t max_values = 1 << 25;         // about 7 GiB of values
  size_t max_marks = 10'000;           // open at a time: the nesting depth when Python wrote it
};

// Throws UserError(65) with `subject` and the byte offset where the pickle is invalid, requests something that is not
// data (extension codes, out-of-band buffers), or exceeds the limits.
std::unique_ptr<const Document> read_pickle(std::span<const uint8_t> bytes, const std::string& subject,
                                            const Limits& limits = {});

}  // namespace dslaunch::runtime::pickle
