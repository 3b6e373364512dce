#include "runtime/model/decoding/cached_attention.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <optional>

#include "base/error.hpp"
#include "runtime/model/decoding/eager_attention.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Stack;

thread_local const CachedPass* current_pass = nullptr;

const CachedPass& pass() {
  DSL_CHECK(current_pass != nullptr, "an operator of cached attention runs in a pass");
  return *current_pass;
}

struct Attention {
  std::optional<at::Tensor> mask;  // [.., tokens or 1, keys]
  bool is_causal = false;
  std::optional<double> scale;
  bool enable_gqa = false;
};

// The part of a table of all positions for a segment's tokens and the first `keys` keys.
at::Tensor part_of(const at::Tensor& table, const Segment& segment, int64_t keys) {
  at::Tensor part = table;
  if (part.dim() > 1 && part.size(-2) > 1) part = part.narrow(-2, segment.begin, segment.count);
  return part.dim() > 0 && part.size(-1) > 1 ? part.narrow(-1, 0, keys) : part;
}

std::optional<at::Tensor> mask_of(const Attention& attention, const Segment& segment, int64_t keys) {
  if (!attention.mask) return std::nullopt;
  return part_of(*attention.mask, segment, keys);
}

// Token i of a segment sees the keys up to its own.
at::Tensor causal_mask(const Segment& segment, int64_t keys, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  const at::Tensor own = at::arange(segment.position, segment.position + segment.count, options).unsqueeze(1);
  return at::arange(keys, options).unsqueeze(0) <= own;
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, const Segment& segment,
                  const Attention& attention) {
  auto mask = mask_of(attention, segment, keys.size(-2));
  if (attention.is_causal && segment.count > 1) mask = causal_mask(segment, keys.size(-2), query.device());
  return at::scaled_dot_product_attention(query, keys.unsqueeze(0), values.unsqueeze(0), mask, 0.0, false,
                                          attention.scale, attention.enable_gqa);
}

at::Tensor attend_cached(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const Attention& attention, size_t layer) {
  std::vector<at::Tensor> out;
  for (const Segment& segment : pass().segments) {
    const auto of_segment = [&](const at::Tensor& tensor) { return tensor.narrow(-2, segment.begin, segment.count); };
    KeyCache& cache = *pass().cache;
    cache.put(layer, segment.text, of_segment(key)[0], of_segment(value)[0]);
    const auto [keys, values] = cache.get(layer, segment.text, segment.position + segment.count);
    out.push_back(attend(of_segment(query), keys, values, segment, attention));
  }
  return at::cat(out, -2);
}

at::Tensor attend_encoded(const at::Tensor& query, size_t key, size_t value, const Attention& attention) {
  std::vector<at::Tensor> out;
  for (const Segment& segment : pass().segments) {
    out.push_back(attend(query.narrow(-2, segment.begin, segment.count), segment.encoded->at(key)[0],
                         segment.encoded->at(value)[0], segment, attention));
  }
  return at::cat(out, -2);
}

// Attention that is written out.
struct Scored {
  torch::jit::Code weights;  // (scores, others...)
  size_t layer = 0, num_inputs = 0;
  std::vector<int64_t> tables;  // inputs
};

at::Tensor attend_scored(const Scored& scored, const at::Tensor& query, const at::Tensor& keys,
                         const at::Tensor& values, Stack others) {
  others.insert(others.begin(), at::matmul(query, keys.transpose(-2, -1)));
  torch::jit::InterpreterState(scored.weights).run(others);
  return at::matmul(others.at(0).toTensor(), values);
}

at::Tensor attend_scored_cached(const Scored& scored, const Stack& inputs) {
  const auto& query = inputs[0].toTensor();
  std::vector<at::Tensor> out;
  for (const Segment& segment : pass().segments) {
    const auto of_segment = [&](const at::Tensor& tensor) { return tensor.narrow(-2, segment.begin, segment.count); };
    KeyCache& cache = *pass().cache;
    cache.put(scored.layer, segment.text, of_segment(inputs[1].toTensor())[0], of_segment(inputs[2].toTensor())[0]);
    const int64_t count = segment.position + segment.count;
    const auto [keys, values] = cache.get(scored.layer, segment.text, count);
    Stack others(inputs.begin() + kFirstOther, inputs.end());
    for (const int64_t table : scored.tables) {
      auto& other = others.at(static_cast<size_t>(table) - kFirstOther);
      other = part_of(other.toTensor(), segment, count);
    }
    out.push_back(attend_scored(scored, of_segment(query), keys.unsqueeze(0), values.unsqueeze(0), std::move(others)));
  }
  return at::cat(out, -2);
}

// Without a pass (for the sizes of what it computes) as it was written.
torch::jit::Operation scored_operation(const torch::jit::Node* node) {
  const Scored scored{torch::jit::Code(node->g(c10::attr::Subgraph), "weights"),
                      static_cast<size_t>(node->i(layer_attribute())), node->inputs().size(),
                      node->is(tables_attribute())};
  return [scored](Stack& stack) {
    const Stack inputs(stack.end() - static_cast<std::ptrdiff_t>(scored.num_inputs), stack.end());
    torch::jit::drop(stack, scored.num_inputs);
    const Stack others(inputs.begin() + kFirstOther, inputs.end());
    stack.emplace_back(current_pass != nullptr ? attend_scored_cached(scored, inputs)
                                               : attend_scored(scored, inputs[0].toTensor(), inputs[1].toTensor(),
                                                               inputs[2].toTensor(), others));
  };
}

void cached_operator(Stack& stack) {
  constexpr size_t kCount = 8;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  const Attention attention{at(3).toOptional<at::Tensor>(), at(4).toBool(), at(5).toOptional<double>(), at(6).toBool()};
  at::Tensor out = attend_cached(at(0).toTensor(), at(1).toTensor(), at(2).toTensor(), attention,
                                 static_cast<size_t>(at(7).toInt()));
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void encoded_operator(Stack& stack) {
  constexpr size_t kCount = 6;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  const Attention attention{at(3).toOptional<at::Tensor>(), false, at(4).toOptional<double>(), at(5).toBool()};
  at::Tensor out = attend_encoded(at(0).toTensor(), static_cast<size_t>(at(1).toInt()),
                                  static_cast<size_t>(at(2).toInt()), attention);
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator(
         "dslaunch::attend_cached(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, "
         "float? scale, bool enable_gqa, int layer) -> Tensor",
         cached_operator, c10::AliasAnalysisKind::CONSERVATIVE),
     torch::jit::Operator("dslaunch::attend_encoded(Tensor query, int key, int value, Tensor? mask, float? scale, bool "
                          "enable_gqa) -> Tensor",
                          encoded_operator, c10::AliasAnalysisKind::CONSERVATIVE),
     torch::jit::Operator("dslaunch::attend_scored(...) -> Tensor", scored_operation,
                          c10::AliasAnalysisKind::CONSERVATIVE)});

}  // namespace

CachedPassScope::CachedPassScope(const CachedPass& pass) {
  DSL_CHECK(current_pass == nullptr, "passes do not nest");
  current_pass = &pass;
}

CachedPassScope::~CachedPassScope() {
  current_pass = nullptr;
}

}  // namespace dslaunch::runtime::model::decoding
