// Layout and communication of parameters and gradients: what the engine passes on from the config for this room.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/memory_plan/rank_memory.hpp"
#include "runtime/sharding/gradient_store.hpp"
#include "runtime/sharding/memory_transfers.hpp"
#include "runtime/sharding/parameter_store.hpp"
#include "runtime/state/partition.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime {

// What a piece of host memory holds.
enum class HostUse : uint8_t { kState, kGradient, kParameter };

struct ShardingOptions {
  int stage = 0;
  at::Device device = at::kCPU;
  std::vector<at::ScalarType> compute_dtypes;  // by parameter
  std::vector<int> optimizer_groups;           // by parameter; empty: all in one
  int64_t max_group_numel = 500'000'000;       // reduce_bucket_size and allgather_bucket_size
  at::ScalarType accumulation_dtype = at::kFloat;
  bool accumulates = false;  // a step has several micro batches, or those of a pipeline; for plans of memory
  std::optional<at::ScalarType> communication_dtype;  // empty: the group's compute dtype
  double predivide = 1.0;                             // gradients are divided by it before they are summed
  // Stage 0: asked when a group's gradients are complete; false: they stay this rank's. Empty: they are averaged.
  std::function<bool()> averages_gradients;
  bool use_reduce_scatter = true;  // false: all-reduce, then each rank takes its slice
  bool use_all_gather = true;      // false: every owner broadcasts its slice

  // Stage 3, in elements.
  int64_t persistence_threshold = 100'000;
  int64_t model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t prefetch_numel = 50'000'000;
  int64_t max_live_numel = 1'000'000'000;
  int64_t max_reuse_numel = 0;  // units stay gathered from forward to backward if less is gathered meanwhile
  // ZeRO++.
  bool quantized_weights = false;    // stage 3: gathers carry 8-bit integers
  bool quantized_frozen = false;     // stage 3: frozen parameters are stored and gathered as 8-bit integers
  bool quantized_gradients = false;  // stages 2 and 3: reductions carry 4-bit integers
  struct Loco {
    double beta = 0.8;
    int64_t reset_interval = 1024;
  };
  std::optional<Loco> loco;  // error feedback of quantized gradients
  // Stage 3: the ranks of this host (hpZ); parameters that were gathered once in a step are gathered again within this
  // group. Null: off. Must outlive the sharding.
  comm::Communicator* secondary_group = nullptr;

  bool for_evaluation = false;  // no training steps: there are neither masters nor gradients

  // Of a pipeline: trained parameters of this stage that others hold, too. `sum` replaces a gradient (1-D) by the sum
  // over these stages; collective among them, for the parameters in this order. Stages 0 and 1.
  struct Tied {
    std::vector<int> parameters;  // in the order of the whole model
    std::function<void(int parameter, const at::Tensor& gradient)> sum;
  };
  Tied tied;
  // The parts of a span of the state that this rank counts in the norm; other ranks count the rest. Empty: all of it.
  std::function<std::vector<Range>(const FlatGroup& group, const StateSpan& span)> counted_ranges;

  // State that rests in host memory or in files (ZeRO-Offload, ZeRO-Infinity). On CPU ranks the same, with host memory
  // as the device.
  struct Offload {
    double optimizer_share = 0;    // of the trained elements, whose masters, moments and gradients are offloaded
    bool parameters = false;       // stage 3: gathered parameters rest on the host; a single rank gathers, too
    bool keeps_gradients = false;  // until the next step's are released: updates are delayed
    // Host memory of an element; 0 for what rests in files.
    int64_t state_bytes = 0;  // of master and moments
    // Host memory of the buffers through which updates of these spans, by elements, and parameters in files go.
    std::function<int64_t(std::span<const int64_t> offloaded_spans, std::span<const StoredSlice> stored)> buffer_bytes;
    // By HostUse: where allocate() takes memory, or kFile.
    std::array<memory_plan::Tier, 3> tiers{memory_plan::Tier::kHost, memory_plan::Tier::kHost,
                                           memory_plan::Tier::kHost};
    // Parameters rest in files, but for the groups that fit, the first ones first, into so many elements of memory.
    bool parameters_in_files = false;
    int64_t max_numel_in_memory = 0;
    // Called once where anything may be offloaded, before it is allocated, with all that this rank will allocate;
    // throws if that is too much.
    std::function<void(int64_t bytes)> reserve;
    std::function<at::Tensor(int64_t numel, at::ScalarType dtype, HostUse use)> allocate;  // zeros
    // How the device reaches the memory of such a use; called at most once for each. Returns null, or is empty: by
    // itself.
    std::function<std::shared_ptr<MemoryTransfers>(HostUse use)> copies;
    // Called once with all of the state: gives the offloaded spans their StateArrays::stored; returns where their
    // gradients go. Empty: allocate() makes their masters and gradients.
    std::function<std::shared_ptr<GradientStore>(std::span<SpanState> state)> store_state;
    // Called once where parameters rest in files, with all of their slices.
    std::function<std::shared_ptr<ParameterStore>(std::span<const StoredSlice> slices)> store_parameters;
    std::function<at::Tensor(const at::Tensor& gradient)> sum_of_squares;  // 0-dim fp64, on the argument's device
  };
  Offload offload;

  // Returns when all ranks have called it with the same text; throws when a rank does not arrive. Empty: the call
  // throws.
  std::function<void(const std::string& text)> barrier;
};

// Stage 3: this rank's part of a flat group that is not trained.
struct FrozenShard {
  int group = 0;
  Range range;
  at::Tensor at_rest;  // in the compute dtype; with quantized_frozen the result of quantize(); undefined: in a file
};

}  // namespace dslaunch::runtime
