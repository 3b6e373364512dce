// The checkpoint being read, as seen by the callback that reads a job's state. Reading never throws for damage: the
// callback runs collectives, so a rank that finds damage continues with zeros, and all of the reading is discarded
// afterwards. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/result.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/shard_exchange.hpp"

namespace dslaunch::runtime {

class RestoreSource {
 public:
  // The result of the reading.
  struct Findings {
    RemoteNeeds needs;        // parts on other hosts that have not been fetched
    Result<> outcome;         // the first error
    bool has_damage = false;  // one of the errors was damage of the checkpoint
  };

  // `is_fetched`: the parts on other hosts have been fetched; `barrier`: see barrier().
  RestoreSource(CheckpointReader& reader, bool is_fetched, std::function<void()> barrier)
      : reader_(reader), is_fetched_(is_fetched), barrier_(std::move(barrier)) {}

  const CheckpointMetadata& metadata() const { return reader_.metadata(); }
  const CheckpointReader& reader() const { return reader_; }
  void read_into(const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out,
                 const std::optional<Slice>& slice = {});
  // With which this rank continues (rank_with_random_state()); empty: it has none.
  std::optional<std::string> rng_state(int rank, const comm::Mesh& mesh);
  // Returns when all ranks are here. Call it before the first collective after reading, since reading may take longer
  // than a collective's timeout. Throws TimeoutError on all ranks, naming a rank that does not arrive. Once per
  // callback.
  void barrier() const { barrier_(); }

  const Findings& findings() const { return findings_; }

 private:
  bool is_remote(const std::string& parameter, const std::string& state, const SliceRange& range);
  void record_error(const UserError& error);

  CheckpointReader& reader_;
  const bool is_fetched_;
  const std::function<void()> barrier_;
  Findings findings_;
};

}  // namespace dslaunch::runtime
