#include "comm/collective.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::comm {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kInt64:
      return 8;
    case DType::kUInt8:
      return 1;
  }
  DSL_CHECK(false, "unknown DType");
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kInt64:
      return "int64";
    case DType::kUInt8:
      return "uint8";
  }
  return "?";
}

void check_buffer(const ConstBuffer& buffer) {
  DSL_CHECK(buffer.data || buffer.count == 0, fmt::format("a buffer of {} elements is null", buffer.count));
}

void check_reduce_scatter(const ConstBuffer& in, const Buffer& out, int size) {
  check_buffer(in);
  check_buffer(out);
  DSL_CHECK(in.dtype == out.dtype && in.count == out.count * static_cast<size_t>(size),
            fmt::format("reduce_scatter of {} {} into {} {} by {} ranks", in.count, name_of(in.dtype), out.count,
                        name_of(out.dtype), size));
}

void check_all_gather(const ConstBuffer& in, const Buffer& out, int size) {
  check_buffer(in);
  check_buffer(out);
  DSL_CHECK(in.dtype == out.dtype && out.count == in.count * static_cast<size_t>(size),
            fmt::format("all_gather of {} {} into {} {} by {} ranks", in.count, name_of(in.dtype), out.count,
                        name_of(out.dtype), size));
}

void check_all_to_all(const ConstBuffer& in, const Buffer& out, int size) {
  check_buffer(in);
  check_buffer(out);
  DSL_CHECK(in.dtype == out.dtype && in.count == out.count && in.count % static_cast<size_t>(size) == 0,
            fmt::format("all_to_all of {} {} into {} {} by {} ranks", in.count, name_of(in.dtype), out.count,
                        name_of(out.dtype), size));
}

void check_member(int rank, int size) {
  DSL_CHECK(rank >= 0 && rank < size, fmt::format("rank {} is not in a group of {}", rank, size));
}

void check_exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives, int own_rank, int size) {
  const auto check = [&](const ConstBuffer& buffer, int peer) {
    check_buffer(buffer);
    check_member(peer, size);
    DSL_CHECK(peer != own_rank, "a rank cannot send to itself");
  };
  for (const auto& [buffer, destination] : sends) check(buffer, destination);
  for (const auto& [buffer, source] : receives) check(buffer, source);
}

std::string describe_call(const char* verb, const ConstBuffer& buffer, const std::string& group) {
  return fmt::format("{} of {} {} in group '{}'", verb, buffer.count, name_of(buffer.dtype), group);
}

std::string describe_exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives,
                              const std::string& group) {
  constexpr size_t kMaxDescribed = 4;
  std::vector<std::string> parts;
  for (const auto& [buffer, destination] : sends) {
    parts.push_back(fmt::format("send of {} {} to member {}", buffer.count, name_of(buffer.dtype), destination));
  }
  for (const auto& [buffer, source] : receives) {
    parts.push_back(fmt::format("receive of {} {} from member {}", buffer.count, name_of(buffer.dtype), source));
  }
  if (parts.size() == 1) return fmt::format("{} in group '{}'", parts.front(), group);
  const size_t num_left_out = parts.size() - std::min(parts.size(), kMaxDescribed);
  if (num_left_out > 0) {
    parts.resize(kMaxDescribed);
    parts.push_back(fmt::format("and {} more", num_left_out));
  }
  return fmt::format("exchange ({}) in group '{}'", fmt::join(parts, ", "), group);
}

}  // namespace dslaunch::comm
