#include "runtime/checkpoint/shard_exchange.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/shard_file.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

constexpr int64_t kChunkBytes = 64 << 20;

// One entry of a shard that is being sent.
struct Entry {
  std::string name;  // a piece's, or "rng"
  int64_t numel = 0, num_bytes = 0;
  at::ScalarType dtype = at::kByte;
};

class Exchange {
 public:
  Exchange(comm::Communicator& world, at::Device device, const RemoteNeeds& needs, CheckpointReader& reader)
      : world_(world), needs_(needs), reader_(reader) {
    chunk_ = at::empty({kChunkBytes}, at::TensorOptions().dtype(at::kByte).device(device));
  }

  Result<> fetch(const std::string& shard, int holder) {
    const SafetensorsFile* file = nullptr;
    Json table = Json::object();
    if (world_.rank() == holder) table = describe(shard, file);
    table = Json::parse(share_text(table.dump(), holder));
    if (table.contains("fault")) return Failure{table["fault"].get<std::string>()};
    const auto entries = entries_of(table.at("entries"));
    const auto wanted = wanted_by_any(entries, shard);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (wanted[i])
        receive(entries[i], shard, holder, file ? file->file()->data() + file->entries()[i].begin : nullptr);
    }
    return {};
  }

 private:
  Json describe(const std::string& shard, const SafetensorsFile*& file) {
    if (!reader_.has_shard(shard)) return {{"fault", fmt::format("'{}/{}' was removed", reader_.path(), shard)}};
    try {
      file = &reader_.verified_shard(shard);
    } catch (const DamagedCheckpoint& error) {
      return {{"fault", error.what()}};
    }
    Json entries = Json::array();
    for (const auto& entry : file->entries()) {
      const int64_t numel = entry.shape.empty() ? 1 : entry.shape[0];
      entries.push_back({entry.name, numel, entry.end - entry.begin, static_cast<int>(entry.dtype)});
    }
    return {{"entries", entries}};
  }

  static std::vector<Entry> entries_of(const Json& json) {
    std::vector<Entry> out;
    for (const auto& item : json) {
      out.push_back({item.at(0).get<std::string>(), item.at(1).get<int64_t>(), item.at(2).get<int64_t>(),
                     static_cast<at::ScalarType>(item.at(3).get<int>())});
    }
    return out;
  }

  // The parts of the entry that this rank needs.
  std::vector<MissingPiece> overlaps(const Entry& entry) const {
    std::vector<MissingPiece> out;
    const auto name = parse_piece_name(entry.name);
    const SavedTensor* saved = name ? reader_.find(name->parameter) : nullptr;
    if (!saved) return out;
    const SliceRange whole{name->slice, name->begin, name->begin + entry.numel};
    for (const auto& piece : needs_.pieces) {
      if (piece.parameter != name->parameter || piece.state != name->state) continue;
      const Range part = needed_part(saved->shape, whole, piece.range);
      if (part.size() > 0) out.push_back({piece.parameter, piece.state, {name->slice, part.begin, part.end}});
    }
    return out;
  }

  // Of a shard that is here, nothing is missing; a piece of it may lie between missing ones.
  bool wants(const Entry& entry, const std::string& shard) const {
    if (reader_.has_shard(shard)) return false;
    if (entry.name == kRngName) return needs_.rng_of && shard_name(*needs_.rng_of) == shard;
    return !overlaps(entry).empty();
  }

  // Counts in fp32, which every backend can sum.
  std::vector<bool> wanted_by_any(const std::vector<Entry>& entries, const std::string& shard) {
    at::Tensor counts = at::zeros({static_cast<int64_t>(entries.size())}, at::kFloat);
    for (size_t i = 0; i < entries.size(); ++i)
      counts[static_cast<int64_t>(i)] = wants(entries[i], shard) ? 1.0F : 0.0F;
    at::Tensor there = counts.to(chunk_.device());
    world_.all_reduce({there.data_ptr(), entries.size(), comm::DType::kFloat32}, comm::ReduceOp::kSum);
    world_.wait_for_completion();
    counts = there.to(at::kCPU);
    std::vector<bool> out;
    for (size_t i = 0; i < entries.size(); ++i) out.push_back(counts.const_data_ptr<float>()[i] > 0);
    return out;
  }

  void receive(const Entry& entry, const std::string& shard, int holder, const uint8_t* source) {
    const bool keeps = wants(entry, shard);
    at::Tensor bytes = at::empty({keeps ? entry.num_bytes : 0}, at::kByte);
    share(source, keeps ? bytes.mutable_data_ptr<uint8_t>() : nullptr, entry.num_bytes, holder);
    if (!keeps) return;
    if (entry.name == kRngName) {
      const char* text = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
      reader_.add_rng_state(*needs_.rng_of, {text, static_cast<size_t>(entry.num_bytes)});
      return;
    }
    const at::Tensor values = bytes.view(entry.dtype);
    const int64_t begin = parse_piece_name(entry.name)->begin;
    for (const auto& part : overlaps(entry)) {
      reader_.add_piece(part.parameter, part.state, part.range,
                        values.narrow(0, part.range.begin - begin, part.range.numel()).clone());
    }
  }

  std::string share_text(const std::string& text, int root) {
    auto size = static_cast<int64_t>(text.size());
    share(reinterpret_cast<const uint8_t*>(&size), reinterpret_cast<uint8_t*>(&size), sizeof(size), root);
    std::string out = text;
    out.resize(static_cast<size_t>(size));
    share(reinterpret_cast<const uint8_t*>(text.data()), reinterpret_cast<uint8_t*>(out.data()), size, root);
    return out;
  }

  // `from` is used on the root, `to` (null: discard) on the other ranks.
  void share(const uint8_t* from, uint8_t* to, int64_t num_bytes, int root) {
    const bool is_root = world_.rank() == root;
    for (int64_t done = 0; done < num_bytes; done += kChunkBytes) {
      const int64_t count = std::min(kChunkBytes, num_bytes - done);
      const at::Tensor part = chunk_.narrow(0, 0, count);
      if (is_root) part.copy_(at::from_blob(const_cast<uint8_t*>(from + done), {count}, at::kByte));
      world_.broadcast({part.data_ptr(), static_cast<size_t>(count), comm::DType::kUInt8}, root);
      world_.wait_for_completion();
      if (!is_root && to) at::from_blob(to + done, {count}, at::kByte).copy_(part);
    }
  }

  comm::Communicator& world_;
  const RemoteNeeds& needs_;
  CheckpointReader& reader_;
  at::Tensor chunk_;
};

}  // namespace

Result<> fetch_remote_pieces(comm::Communicator& world, at::Device device, const std::map<std::string, int>& holders,
                             const RemoteNeeds& needs, CheckpointReader& reader) {
  Exchange exchange(world, device, needs, reader);
  for (const auto& [shard, holder] : holders) {
    if (auto fetched = exchange.fetch(shard, holder); !fetched.ok()) return fetched;
  }
  return {};
}

}  // namespace dslaunch::runtime
