// Which of the ranks that hold the same elements counts them in sums over the world, and saves them: the first stage
// that has the parameter, there the first tensor rank that has this part of it, and there the first data rank where the
// data ranks do not divide it among them. Immutable; any thread.
#pragma once
#include <vector>

#include "comm/groups.hpp"
#include "runtime/engine/step/tied_parameters.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/partition.hpp"
#include "runtime/state/state_span.hpp"

namespace dslaunch::runtime::engine::step {

class StateOwnership {
 public:
  StateOwnership(const ParameterTable& table, const TiedParameters& tied, const comm::Groups& groups);

  // Whether this rank's shard of the parameter counts here, where the data ranks divide the parameter among them,
  bool owns_shard(int parameter) const { return owns_shard_.at(static_cast<size_t>(parameter)); }
  // and where each data rank holds all that its tensor rank has.
  bool owns_unsharded(int parameter) const { return is_first_data_rank() && owns_shard(parameter); }
  bool is_first_data_rank() const { return own_.data == 0; }
  // All ranks of a stage hold the same buffers.
  bool owns_buffers() const { return is_first_data_rank() && own_.tensor == 0; }
  bool owns_all_shards() const;
  // The parts of a span that owns_shard().
  std::vector<Range> owned_ranges(const FlatGroup& group, const StateSpan& span) const;

 private:
  comm::MeshCoordinates own_;
  std::vector<bool> owns_shard_;  // by parameter
};

}  // namespace dslaunch::runtime::engine::step
