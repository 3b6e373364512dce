// A part of a model's graph whose results follow from its arguments alone: from sizes, and from buffers that keep their
// values. It is evaluated once for each set of arguments, and the results are kept: masks, positions, tables of sines.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/model/constants/known_masks.hpp"

namespace dslaunch::runtime::model::constants {

// Which operators of a graph may be evaluated once and their results kept.

// Without side effects, random numbers or uninitialized memory; the same results for the same arguments.
bool is_repeatable(const torch::jit::Node* node);
// Its results share the memory of an argument, or are numbers: evaluating it again costs next to nothing.
bool is_free(const torch::jit::Node* node);

// What a region keeps: sets of results, and their bytes. The least recently used ones make room.
inline constexpr size_t kMaxShapes = 32;
inline constexpr size_t kMaxKeptBytes = size_t{256} << 20u;
inline constexpr size_t kMaxBytesOfShape = size_t{1} << 30u;  // a set may be larger, alone, but not larger than this

// What the regions of a model share.
struct RegionContext {
  std::shared_ptr<KnownMasks> masks;  // learn the results
  at::Device device = at::kCPU;
  // Whether work on the current stream of the device is captured into a CUDA graph.
  bool (*is_capturing)(at::Device device) = [](at::Device) { return false; };
};

// Any thread.
class ConstantRegion : public torch::CustomClassHolder {
 public:
  // `graph`: operators without side effects and without random numbers; its inputs are numbers, lists of integers and
  // tensors.
  ConstantRegion(std::shared_ptr<torch::jit::Graph> graph, RegionContext context);

  // Replaces the arguments on the stack by the results. The same tensors as before, unless an argument differs, a
  // tensor among the arguments or results was written to (its version counter tells), or autocast is in another state.
  // While a CUDA graph is captured nothing new is kept: its memory would belong to the graph. What a captured graph has
  // read is kept for good.
  void run(torch::jit::Stack& stack);

  size_t num_evaluations() const { return num_evaluations_; }

 private:
  struct Argument {
    c10::IValue number;
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> tensor;  // in place of `number`
    uint32_t version = 0;
  };
  struct AutocastState {
    bool enabled = false;
    at::ScalarType dtype = at::kFloat;
    bool operator==(const AutocastState&) const = default;
  };
  struct Kept {
    std::vector<Argument> arguments;
    AutocastState autocast;
    std::vector<c10::IValue> results;
    std::vector<uint32_t> versions;  // of the results; 0 for a number
    size_t num_bytes = 0;
    bool is_captured = false;
  };

  static Argument argument_of(const c10::IValue& value);
  static bool equals(const Argument& argument, const c10::IValue& value);
  static bool is_stale(const Kept& kept);
  static bool is_intact(const Kept& kept);
  AutocastState autocast_state() const;
  std::vector<c10::IValue> evaluate(const std::vector<c10::IValue>& arguments);
  // Null: nothing is kept for these arguments.
  const std::vector<c10::IValue>* find(const std::vector<c10::IValue>& arguments, bool is_capturing);
  void keep(const std::vector<c10::IValue>& arguments, const std::vector<c10::IValue>& results, size_t num_bytes);
  // Returns whether there is room.
  bool make_room(size_t num_bytes);

  const std::shared_ptr<torch::jit::Graph> graph_;
  const RegionContext context_;
  const size_t num_arguments_;
  const torch::jit::Code code_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::list<Kept> kept_;  // the most recently used first
  size_t num_evaluations_ = 0;
};

// Finds the parts of a model's graphs that depend on nothing but sizes, constants and buffers, and makes each of them a
// ConstantRegion.
//
// Call when the graphs are final, before their first run: a region keeps a copy of its operators. Calls of submodules
// without parameters that compute such values (rotary embeddings) are inlined. A buffer counts as constant where only
// operators read it that cannot write to it; its version counter is watched nevertheless. Returns the number of
// regions.
int keep_constants(const torch::jit::Module& model, const RegionContext& context);

}  // namespace dslaunch::runtime::model::constants
