// Shared by all backends: element sizes, the checks of a call's arguments, and a call's name in messages.
#pragma once
#include <span>
#include <string>

#include "comm/communicator.hpp"

namespace dslaunch::comm {

const char* name_of(DType dtype);
inline size_t num_bytes_in(const ConstBuffer& buffer) {
  return buffer.count * size_of(buffer.dtype);
}

// Throw InternalError when counts, types or ranks are inconsistent.
void check_buffer(const ConstBuffer& buffer);
void check_reduce_scatter(const ConstBuffer& in, const Buffer& out, int size);
void check_all_gather(const ConstBuffer& in, const Buffer& out, int size);
void check_all_to_all(const ConstBuffer& in, const Buffer& out, int size);
void check_member(int rank, int size);
void check_exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives, int own_rank, int size);

// "all_reduce of 1024 float32 in group 'world'"
std::string describe_call(const char* verb, const ConstBuffer& buffer, const std::string& group);
// "send of 1024 float32 to member 2 in group 'pipe.0'"; of several messages "exchange (send of ..., receive of ...) in
// ...", the first few of them
std::string describe_exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives,
                              const std::string& group);

}  // namespace dslaunch::comm
