#include "runtime/model/decoding/cached_attention.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/device/launch_overlap.hpp"
#include "runtime/model/decoding/decoding_functions.hpp"
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
  // A text from its beginning has kernels of its own.
  if (attention.is_causal && segment.count == keys.size(-2)) {
    return at::scaled_dot_product_attention(query, keys.unsqueeze(0), values.unsqueeze(0), std::nullopt, 0.0,
                                            segment.count > 1, attention.scale, attention.enable_gqa);
  }
  if (attention.is_causal && segment.count > 1) mask = causal_mask(segment, keys.size(-2), query.device());
  return at::scaled_dot_product_attention(query, keys.unsqueeze(0), values.unsqueeze(0), mask, 0.0, false,
                                          attention.scale, attention.enable_gqa);
}

// One text after the other, with its keys gathered: what the kernel computes on a GPU.
at::Tensor attend_step_on_host(const StepAttention& step, bool enable_gqa) {
  std::vector<at::Tensor> out;
  for (int64_t text = 0; text < step.positions.numel(); ++text) {
    const auto position = step.positions[text].item<int64_t>();
    const auto of_text = [text](const at::Tensor& tensor) { return tensor.narrow(2, text, 1); };
    const auto gathered = [&](const at::Tensor& pages, const at::Tensor& added) {
      const at::Tensor table = step.page_table[text];
      const int64_t page = table[position / KeyCache::kPageTokens].item<int64_t>();
      pages[page].narrow(1, position % KeyCache::kPageTokens, 1).copy_(of_text(added)[0]);
      const at::Tensor taken = pages.index_select(0, table.narrow(0, 0, position / KeyCache::kPageTokens + 1));
      return taken.transpose(0, 1).reshape({1, pages.size(1), -1, pages.size(3)}).narrow(2, 0, position + 1);
    };
    const Segment segment{.begin = text, .count = 1, .position = position};
    const at::Tensor keys = gathered(step.key_pages, step.key), values = gathered(step.value_pages, step.value);
    std::optional<at::Tensor> mask;
    if (step.mask) mask = part_of(*step.mask, segment, position + 1);
    out.push_back(
        at::scaled_dot_product_attention(of_text(step.query), keys, values, mask, 0.0, false, step.scale, enable_gqa));
  }
  return at::cat(out, -2);
}

at::Tensor attend_step(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const Attention& attention, size_t layer) {
  const StepPass& own = *pass().step;
  const auto [key_pages, value_pages] = pass().cache->pages(layer);
  const double scale = attention.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  StepAttention step{query, key, value, key_pages, value_pages, own.page_table, own.positions, attention.mask, scale};
  if (!query.is_cuda()) return attend_step_on_host(step, attention.enable_gqa);
  const auto type = query.scalar_type();
  if (step.mask && step.mask->scalar_type() != at::kBool) step.mask = step.mask->to(type);
  step.overlaps = device::overlaps_launches();
  const at::Tensor out = at::empty({query.size(2), query.size(1), query.size(3)}, query.options());
  const bool are_alike = key.scalar_type() == type && value.scalar_type() == type && key_pages.scalar_type() == type &&
                         value.size(3) == query.size(3);
  if (!are_alike || !device::module().decoding.attend(step, own.tickets, out)) {
    throw std::runtime_error(fmt::format("no kernel for attention with {} queries, keys and values of {} numbers",
                                         at::toString(type), query.size(3)));
  }
  return out.unsqueeze(0).transpose(1, 2);
}

at::Tensor of_segment(const at::Tensor& tensor, const Segment& segment) {
  return tensor.narrow(-2, segment.begin, segment.count);
}

// Keeps the keys and values of a segment. Returns those that its last token sees; of a text from its beginning, what is
// given.
KeyCache::KeysAndValues put_and_get(size_t layer, const Segment& segment, const at::Tensor& key,
                                    const at::Tensor& value) {
  KeyCache& cache = *pass().cache;
  KeyCache::KeysAndValues own{of_segment(key, segment)[0], of_segment(value, segment)[0]};
  cache.put(layer, segment.text, own.keys, own.values);
  return segment.position > 0 ? cache.get(layer, segment.text, segment.position + segment.count) : own;
}

at::Tensor attend_cached(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const Attention& attention, size_t layer) {
  if (pass().step != nullptr) return attend_step(query, key, value, attention, layer);
  std::vector<at::Tensor> out;
  for (const Segment& segment : pass().segments) {
    const auto seen = put_and_get(layer, segment, key, value);
    out.push_back(attend(of_segment(query, segment), seen.keys, seen.values, segment, attention));
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
    const int64_t count = segment.position + segment.count;
    const auto [keys, values] = put_and_get(scored.layer, segment, inputs[1].toTensor(), inputs[2].toTensor());
    Stack others(inputs.begin() + kFirstOther, inputs.end());
    for (const int64_t table : scored.tables) {
      auto& other = others.at(static_cast<size_t>(table) - kFirstOther);
      other = part_of(other.toTensor(), segment, count);
    }
    out.push_back(
        attend_scored(scored, of_segment(query, segment), keys.unsqueeze(0), values.unsqueeze(0), std::move(others)));
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

Result<> check_steps(torch::jit::Graph& graph) {
  for (const torch::jit::Node* node : graph.nodes()) {
    const std::string_view kind = node->kind().toQualString();
    if (kind == kAttendEncoded || kind == kAttendScored) return Failure{std::string(kind)};
  }
  return {};
}

CachedPassScope::CachedPassScope(const CachedPass& pass) {
  DSL_CHECK(current_pass == nullptr, "passes do not nest");
  current_pass = &pass;
}

CachedPassScope::~CachedPassScope() {
  current_pass = nullptr;
}

}  // namespace dslaunch::runtime::model::decoding
