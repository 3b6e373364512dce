#include "runtime/checkpoint/shard_file.hpp"

#include <charconv>
#include <map>
#include <string_view>

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
  return fmt::format("{}{}@{}/{}", piece.state, piece.slice ? slice_text(*piece.slice) : "", piece.begin,
                     piece.parameter);
}

// A number and nothing else.
std::optional<int64_t> count_from(std::string_view text) {
  int64_t count = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count);
  return error == std::errc() && rest == end && count >= 0 ? std::optional(count) : std::nullopt;
}

// The inverse of slice_text(), without the first bracket.
std::optional<Slice> slice_from(std::string_view text) {
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  if (first == text.npos || second == text.npos || text.back() != ']') return std::nullopt;
  const auto dim = count_from(text.substr(0, first)), start = count_from(text.substr(first + 1, second - first - 1)),
             length = count_from(text.substr(second + 1, text.size() - second - 2));
  return dim && start && length ? std::optional(Slice{*dim, *start, *length}) : std::nullopt;
}

}  // namespace

std::string slice_text(const Slice& slice) {
  return fmt::format("[{}:{}:{}]", slice.dim, slice.start, slice.length);
}

std::optional<PieceName> parse_piece_name(const std::string& name) {
  const size_t at = name.find('@'), slash = name.find('/');
  if (at == std::string::npos || slash == std::string::npos || slash < at) return std::nullopt;
  const std::string_view place(name.data(), slash), cut = place.substr(0, at);
  const auto begin = count_from(place.substr(at + 1));
  if (!begin) return std::nullopt;
  const size_t bracket = cut.find('[');
  PieceName piece{std::string(cut.substr(0, bracket)), {}, *begin, name.substr(slash + 1)};
  if (bracket == cut.npos) return piece;
  piece.slice = slice_from(cut.substr(bracket + 1));
  return piece.slice ? std::optional(piece) : std::nullopt;
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
    DSL_CHECK(piece.state.find_first_of("@/[") == std::string::npos, "bad state name '" + piece.state + "'");
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
