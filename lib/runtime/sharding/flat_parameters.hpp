// The parameters of a model in flat buffers, and the collectives of data parallelism (stage 0) and ZeRO-1 over them.
//
//   stage 0: every rank holds everything; gradients are all-reduced; the optimizer's step is replicated.
//   stage 1: master weights and moments are sharded; gradients are reduce-scattered at the accumulation boundary,
//   updated
//            parameters all-gathered after the step.
//
// Threads: acquire/release on the thread that runs the model, take_gradients on autograd's, all else on the engine's,
// never at the same time as a backward pass.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/state/partition.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

struct ShardingOptions {
  int stage = 0;  // 0 or 1
  at::Device device = at::kCPU;
  std::vector<at::ScalarType> compute_dtypes;         // by parameter
  int64_t max_group_numel = 500'000'000;              // reduce_bucket_size and allgather_bucket_size
  at::ScalarType accumulation_dtype = at::kFloat;     // fp32 or bf16
  std::optional<at::ScalarType> communication_dtype;  // empty: the group's compute dtype
  double predivide = 1.0;                             // gradients are divided by it before they are summed
  bool use_reduce_scatter = true;                     // false: all-reduce, then each rank takes its slice
  bool use_all_gather = true;                         // false: every owner broadcasts its slice
  bool overlap_communication = false;                 // device only: a bucket is reduced while backward goes on
};

// What the optimizer works on: this rank's part of one flat group.
struct Shard {
  int group = 0;
  Range range;               // within the group's flat buffer
  at::Tensor master;         // fp32
  at::Tensor gradient;       // fp32, the sum over the data ranks after reduce_gradients(), times 1/predivide
  at::Tensor low_precision;  // this range of the parameters themselves when they are not fp32; else undefined
};

class FlatParameters : public UnitParameters {
 public:
  // `data_group` must outlive this object.
  FlatParameters(const ParameterTable& table, ShardingOptions options, comm::Communicator& data_group);

  // Reads elements [begin, begin + out.numel()) of a parameter into `out` (1-D, any floating type, host memory).
  using ReadElements = std::function<void(int parameter, int64_t begin, at::Tensor out)>;
  // Fills parameters and master shards. All ranks must read the same values.
  void load(const ReadElements& read);
  // Fills master shards only and then all parameters from them: restores a checkpoint.
  void load_masters(const ReadElements& read);

  std::vector<at::Tensor> acquire(int unit, UnitCall call) override;
  void release(int unit) override;
  void prepare_backward(int unit) override;
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override;

  void begin_step();                    // forgets the gradients of the last step
  void begin_micro_step(bool is_last);  // with overlap, the last one's backward reduces as it goes
  void reduce_gradients();              // after the last backward
  void gather_parameters();             // after the optimizer has written the shards

  std::vector<Shard>& shards() { return shards_; }
  const std::vector<FlatGroup>& groups() const { return groups_; }
  int num_shards() const { return num_shards_; }
  // Sums to divide by, so that the gradient is the mean over the data ranks: data ranks / predivide.
  double gradient_divisor() const;

 private:
  struct GroupBuffers {
    at::Tensor parameters;                   // compute dtype, padded
    at::Tensor accumulated;                  // accumulation dtype, padded
    std::vector<at::Tensor> gradient_views;  // 1-D, by segment
    std::vector<bool> written;               // by segment, since begin_step()
    bool reduced = false;
  };
  struct Place {  // of a unit's parameter
    int group = 0;
    int segment = 0;
  };

  void allocate_group(size_t index);
  void make_shard(size_t index);
  void reduce_group(size_t index);
  void zero_unwritten(GroupBuffers& buffers);
  void reduce_ready_units();
  void reduce_on_side_stream(size_t group);
  at::ScalarType wire_dtype(const FlatGroup& group) const;

  // fixed after construction
  const ParameterTable& table_;
  ShardingOptions options_;
  comm::Communicator& data_group_;
  int num_shards_ = 1, shard_index_ = 0;
  std::vector<FlatGroup> groups_;
  std::vector<std::vector<Place>> places_;           // by unit, by parameter of the unit
  std::vector<std::vector<at::Tensor>> unit_views_;  // by unit: the parameters in their own shapes
  // the engine's thread, or autograd's during a backward pass
  std::vector<GroupBuffers> buffers_;
  std::vector<Shard> shards_;
  std::vector<int> open_calls_;  // by unit: forward calls whose gradients have not come yet
  int next_unit_to_reduce_ = 0;  // units are reduced from the last to the root, in this fixed order
  bool reduce_as_ready_ = false;
  std::optional<c10::Stream> side_stream_;
};

}  // namespace dslaunch::runtime
