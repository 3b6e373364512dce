#include "runtime/checkpoint/shard_file.hpp"

#include <charconv>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/state/safetensors_writer.hpp"
#include "runtime/state/tensor_bytes.hpp"

namespace dslaunch::runtime {
namespace {

// The inverse of parse_piece_name().
std::string to_tensor_name(const StatePiece& piece) {
  return fmt::format("{}@{}/{}", piece.state, piece.begin, piece.parameter);
}

}  // namespace

std::optional<PieceName> parse_piece_name(const std::string& name) {
  const size_t at = name.find('@'), slash = name.find('/');
  if (at == std::string::npos || slash == std::string::npos || slash < at) return std::nullopt;
  PieceName piece{name.substr(0, at), 0, name.substr(slash + 1)};
  const char* const end = name.data() + slash;
  const auto [rest, error] = std::from_chars(name.data() + at + 1, end, piece.begin);
  if (error != std::errc() || rest != end || piece.begin < 0) return std::nullopt;
  return piece;
}

CheckpointFile write_shard(const std::string& directory, int rank, const std::vector<StatePiece>& pieces,
                           const std::string& rng_state) {
  std::vector<TensorDescription> tensors;
  std::map<std::string, PieceValues> sources;
  auto add = [&](const std::string& name, const PieceValues& values) {
    tensors.push_back({name, values.dtype(), {values.numel()}});
    sources.emplace(name, values);
  };
  for (const auto& piece : pieces) {
    DSL_CHECK(piece.state.find_first_of("@/") == std::string::npos, "bad state name '" + piece.state + "'");
    add(to_tensor_name(piece), piece.values);
  }
  if (!rng_state.empty()) add(kRngName, tensor_of_bytes(rng_state));

  CheckpointFile file{.name = shard_name(rank)};
  ContentHash hash;
  SafetensorsWriter writer(directory + "/" + file.name, std::move(tensors), {{"rank", std::to_string(rank)}},
                           [&](const void* data, size_t size) { hash.update(data, size); });
  for (const auto& tensor : writer.order()) {
    sources.at(tensor.name).for_each_block([&](const at::Tensor& block) { writer.write_part(block); });
  }
  writer.finish(/*sync=*/true);
  file.bytes = writer.bytes_written();
  file.xxh3_128 = hash.hex();
  return file;
}

}  // namespace dslaunch::runtime
