// Compares masters and moments of a run with those of its replica, for --verify: each rank broadcasts its pieces, and
// rank 0, which has the replica, compares them. One thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/engine/verify/replica.hpp"
#include "runtime/engine/verify/verification_bounds.hpp"

namespace dslaunch::runtime::engine::verify {

class StateComparison {
 public:
  // Collective: every rank learns which rank owns which piece. The references must outlive this object.
  StateComparison(step::Engine& engine, comm::Communicator& world, at::Device device, const VerificationBounds& bounds);

  // Collective; `replica`: on rank 0, null elsewhere. The error, on rank 0 only, describes the first difference in
  // model order. The replica then has the state of the run.
  Result<> compare(Replica* replica);

  // Parameters that differed in the last comparison.
  int64_t num_different() const { return num_different_; }
  // The largest share of its bound that a parameter or moment has used so far.
  double largest_share() const { return largest_share_; }

 private:
  struct PieceLocation {  // location of a piece of state on a rank
    std::string parameter;
    std::string state;
    int64_t begin = 0, count = 0;
    std::optional<Slice> slice = {};  // of the parameter, in whose elements `begin` counts
  };
  class PieceInWhole;
  struct Difference {
    int parameter = 0;  // index into the replica's table
    std::string state;
    size_t index = 0;  // of parameter and state in the replica's state
    int64_t element = 0;
    int rank = 0;
    double run = 0, replica = 0, bound = 0;
  };

  void exchange_layout();
  at::Tensor values_of_rank(int rank);
  // Without the names of parameter, state and rank.
  std::optional<Difference> compare_piece(const Replica::State& replica_state, size_t index,
                                          const PieceInWhole& in_whole, const at::Tensor& run_values);
  static std::string describe(const Difference& difference, const ParameterTable& table);

  // fixed after construction
  step::Engine& engine_;
  comm::Communicator& world_;
  const at::Device device_;
  const VerificationBounds bounds_;
  std::vector<std::vector<PieceLocation>> layout_;  // by rank
  // results
  int64_t num_different_ = 0;
  double largest_share_ = 0;
};

// Names a parameter of the model, and an element of a parameter, in messages.
std::string describe_parameter(const ParameterTable& table, int parameter);
std::string coordinates(int64_t element, const std::vector<int64_t>& shape);

}  // namespace dslaunch::runtime::engine::verify
