// The operators of attention over kept keys and values, for a batch of one whose positions are tokens of any texts.
//
//     dslaunch::attend_cached(query, key, value, mask?, is_causal, scale?, enable_gqa, layer)
//     dslaunch::attend_encoded(query, key, value, mask?, scale?, enable_gqa)    key, value: numbers of encoded values
//
// as scaled_dot_product_attention: [1, heads, tokens, width]. They find the texts in the pass that runs on this thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/decoding/key_cache.hpp"

namespace dslaunch::runtime::model::decoding {

inline constexpr char kAttendCached[] = "dslaunch::attend_cached";
inline constexpr char kAttendEncoded[] = "dslaunch::attend_encoded";

// Neighbouring positions of a pass that are tokens of one text.
struct Segment {
  int text = 0;
  int64_t begin = 0, count = 0;            // of the pass
  int64_t position = 0;                    // of the first one in its text
  const std::vector<at::Tensor>* encoded;  // what the decoder reads of the text's encoder; null: nothing
};

// A pass over one new token of each text, of which the host knows neither the tokens nor, while work that was captured
// is replayed, the positions.
struct StepPass {
  at::Tensor positions;   // int64 [texts]
  at::Tensor page_table;  // int32 [texts, pages]
  at::Tensor tickets;     // int32, zeros: for attention on GPUs (decoding_functions.hpp)
};

struct CachedPass {
  KeyCache* cache = nullptr;
  std::vector<Segment> segments;  // without `step`
  const StepPass* step = nullptr;
};

// Whether the operators of cached attention in a graph work in a StepPass; the failure names one that does not.
Result<> check_steps(torch::jit::Graph& graph);

// The pass of this thread during the lifetime of this object.
class CachedPassScope {
 public:
  explicit CachedPassScope(const CachedPass& pass);
  ~CachedPassScope();
  CachedPassScope(const CachedPassScope&) = delete;
  CachedPassScope& operator=(const CachedPassScope&) = delete;
};

}  // namespace dslaunch::runtime::model::decoding
