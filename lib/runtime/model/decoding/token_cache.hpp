// A forward that predicts tokens, run over the tokens of texts one time each (decode_graph.hpp), after a comparison
// with the whole forward. On the thread that runs the model.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>

#include "base/result.hpp"
#include "runtime/model/decoding/token_forward.hpp"
#include "runtime/model/interface/cached_forward.hpp"

namespace dslaunch::runtime::model::decoding {

// Calls `body` while the module's parameters are in their slots.
using WithParameters = std::function<c10::IValue(const std::function<c10::IValue()>& body)>;

struct CachedModel {
  torch::jit::Module module;
  TokenForward forward;  // of the module, as it runs on the device
  at::Device device = at::kCPU;
  int64_t vocabulary = 1;  // ids below it are rows of its tables
  WithParameters with_parameters;
  // Makes a final graph one that runs faster on the device, with the same results; may be empty.
  std::function<void(torch::jit::Block*)> fuse;
  // Of a model that tensor ranks share: waits until `is_reached` (null: for all that is enqueued), and throws what ends
  // the ranks meanwhile. Empty: one rank.
  std::function<void(const std::function<bool()>& is_reached)> wait = {};
};

// Error: why tokens cannot be kept, as a clause: an operator that mixes positions, or logits that differ from those of
// the whole forward. Throws UserError(65) if not even the tokens of the comparison fit.
Result<std::unique_ptr<CachedForward>> make_token_cache(CachedModel model, const CacheOptions& options);

}  // namespace dslaunch::runtime::model::decoding
