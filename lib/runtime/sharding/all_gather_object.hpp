// All-gathers of small plain values outside a training step, for what all ranks must agree on: sums of an evaluation,
// verdicts. Waits for the device. One thread.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.hpp"
#include "comm/communicator.hpp"

namespace dslaunch::runtime {

// Every rank's bytes, in rank order. Collective; all ranks must pass the same number of bytes.
std::vector<std::string> gather_bytes(comm::Communicator& group, at::Device device, const std::string& own);

// As gather_bytes(), for strings whose lengths may differ between ranks.
std::vector<std::string> gather_texts(comm::Communicator& group, at::Device device, const std::string& own);

// Every rank's outcome, in rank order.
std::vector<Result<>> gather_results(comm::Communicator& group, at::Device device, const Result<>& own);

template <class T>
std::vector<T> gather_values(comm::Communicator& group, at::Device device, const T& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> out;
  for (const auto& bytes : gather_bytes(group, device, {reinterpret_cast<const char*>(&own), sizeof own})) {
    std::memcpy(&out.emplace_back(), bytes.data(), sizeof(T));
  }
  return out;
}

}  // namespace dslaunch::runtime
