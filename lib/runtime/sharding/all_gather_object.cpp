#include "runtime/sharding/all_gather_object.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime {

std::vector<std::string> gather_bytes(comm::Communicator& group, at::Device device, const std::string& own) {
  const auto size = static_cast<int64_t>(own.size());
  const int64_t ranks = group.size();
  if (ranks == 1 || size == 0) return std::vector<std::string>(static_cast<size_t>(ranks), own);
  at::Tensor all = at::zeros({ranks, size}, at::kByte);
  std::memcpy(all[group.rank()].data_ptr(), own.data(), own.size());
  all = all.to(device);
  const at::Tensor mine = all[group.rank()];
  group.all_gather(buffer_of(mine), buffer_of(all));
  group.wait_for_completion();
  all = all.cpu();
  std::vector<std::string> out;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    out.emplace_back(static_cast<const char*>(all[rank].const_data_ptr()), own.size());
  }
  return out;
}

std::vector<std::string> gather_texts(comm::Communicator& group, at::Device device, const std::string& own) {
  const auto lengths = gather_values<uint64_t>(group, device, own.size());
  std::string padded = own;
  padded.resize(*std::max_element(lengths.begin(), lengths.end()));
  auto out = gather_bytes(group, device, padded);
  for (size_t rank = 0; rank < out.size(); ++rank) out[rank].resize(lengths[rank]);
  return out;
}

// An error travels behind a mark, so that an empty one still differs from success.
std::vector<Result<>> gather_results(comm::Communicator& group, at::Device device, const Result<>& own) {
  constexpr const char* kFailed = "!";
  std::vector<Result<>> out;
  for (const auto& text : gather_texts(group, device, own.ok() ? "" : kFailed + own.error())) {
    out.push_back(text.empty() ? Result<>() : Failure{text.substr(1)});
  }
  return out;
}

}  // namespace dslaunch::runtime
