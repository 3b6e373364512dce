// The values of a decode graph that depend on sizes only, for as many positions as texts have so far: rotary angles,
// learned positions, masks, biases. On the thread that runs the model.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/decoding/decode_graph.hpp"

namespace dslaunch::runtime::model::decoding {

class PositionTables {
 public:
  // Positions of the (decoder's) text and of the encoder's.
  struct Counts {
    int64_t tokens = 0, encoded = 0;
  };
  using Evaluate = std::function<std::vector<at::Tensor>(const Counts& counts)>;

  struct Growth {
    int64_t step = 64;  // positions by which tables grow at least, where the model has as many
    int64_t most = 0;   // positions that the model has; 0: not known
  };
  PositionTables(std::vector<Table> uses, Evaluate evaluate, Growth growth)
      : uses_(std::move(uses)), evaluate_(std::move(evaluate)), growth_(growth), dims_(uses_.size()) {}

  // Which of their dims are positions, from what they are for a few. Adds to `counted` the names of values that have
  // another number of elements than there are positions. Error: a value that is not the same for the first positions of
  // texts of different lengths, or one that tokens cannot read row by row; as a clause.
  Result<> find_dims(bool has_encoder, std::set<std::string>& counted);
  // For at least so many positions. Throws what forward throws for more than it takes.
  void ensure(const Counts& counts);
  // Changes when ensure() has computed them again.
  int64_t layout() const { return layout_; }
  // What the tokens at these positions (int64, on the device) read.
  std::vector<at::Tensor> rows(const at::Tensor& positions) const;

 private:
  struct Dims {
    std::vector<int64_t> tokens, encoded;
  };
  Result<> compare(const Counts& fewer, const Counts& more, bool of_encoder, std::set<std::string>& counted);
  Result<> check_use(size_t table, int64_t dim) const;
  void find_alike();

  const std::vector<Table> uses_;
  const Evaluate evaluate_;
  const Growth growth_;
  std::vector<Dims> dims_;  // by table
  Counts counts_;           // of values_
  std::vector<at::Tensor> values_;
  std::vector<size_t> alike_;  // by table: the first one with the same values, since layers have the same tables
  int64_t layout_ = 0;
};

}  // namespace dslaunch::runtime::model::decoding
