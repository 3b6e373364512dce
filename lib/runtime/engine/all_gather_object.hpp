// Small plain values from every rank to every rank, for what the ranks have to agree on outside a step: sums of an
// evaluation, verdicts. Waits for the device. One thread.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.hpp"

namespace dslaunch::runtime {

// Every rank's bytes in the order of the ranks. Collective; all ranks give the same number of bytes.
std::vector<std::string> gather_bytes(comm::Communicator& group, at::Device device, const std::string& own);

// The same where lengths differ.
std::vector<std::string> gather_texts(comm::Communicator& group, at::Device device, const std::string& own);

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
