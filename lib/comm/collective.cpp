#include "comm/collective.hpp"

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

void check_peer(int peer, int own_rank, int size) {
  check_member(peer, size);
  DSL_CHECK(peer != own_rank, "a rank cannot send to itself");
}

std::string describe_call(const char* verb, const ConstBuffer& buffer, const std::string& group) {
  return fmt::format("{} of {} {} in group '{}'", verb, buffer.count, name_of(buffer.dtype), group);
}

}  // namespace dslaunch::comm
