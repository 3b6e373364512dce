// What tests ask of an imported state.
#pragma once
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"
#include "runtime/checkpoint/deepspeed/model_fit.hpp"

namespace dslaunch::test {

inline const runtime::SavedTensor& parameter(const runtime::deepspeed::ImportedState& state, const std::string& name) {
  const runtime::SavedTensor* found = runtime::deepspeed::find_tensor(state.metadata.parameters, name);
  REQUIRE(found);
  return *found;
}

// A state of a parameter, joined from the pieces of all ranks; elements that no piece has are NaN.
inline at::Tensor joined_state(const runtime::deepspeed::ImportedState& imported, const std::string& name,
                               const std::string& state) {
  at::Tensor out = at::full({parameter(imported, name).numel()}, NAN);
  for (const auto& shard : imported.shards) {
    for (const auto& piece : shard) {
      if (piece.parameter != name || piece.state != state) continue;
      const int64_t count = piece.values.numel();
      out.narrow(0, piece.begin, count).copy_(piece.values.read(0, count));
    }
  }
  return out;
}

inline at::Tensor counting(int64_t first, int64_t numel) {
  return at::arange(first, first + numel, at::kFloat);
}

}  // namespace dslaunch::test
