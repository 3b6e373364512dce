#include "runtime/checkpoint/checkpoint_metadata.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/json_depth.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/state/dtype_names.hpp"
#include "runtime/state/saved_scalars.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::ordered_json;

// The types that safetensors supports.
constexpr DtypeName kDtypes[] = {{"float32", at::kFloat},
                                 {"bfloat16", at::kBFloat16},
                                 {"float16", at::kHalf},
                                 {"float64", at::kDouble},
                                 {"int64", at::kLong},
                                 {"int32", at::kInt},
                                 {"int16", at::kShort},
                                 {"int8", at::kChar},
                                 {"uint8", at::kByte},
                                 {"uint64", at::kUInt64},
                                 {"uint32", at::kUInt32},
                                 {"uint16", at::kUInt16},
                                 {"bool", at::kBool},
                                 {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                 {"float8_e5m2", at::kFloat8_e5m2},
                                 {"complex64", at::kComplexFloat}};

std::string dtype_name(const SavedTensor& tensor) {
  if (const char* name = name_of(kDtypes, tensor.dtype)) return name;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format(
          "{} '{}' is {}, which a checkpoint cannot store. Use another type in the model, or train without checkpoints",
          tensor.is_buffer ? "buffer" : "parameter", tensor.name, c10::toString(tensor.dtype)));
}

at::ScalarType dtype_from(const std::string& name) {
  if (const auto dtype = dtype_named(kDtypes, name)) return *dtype;
  throw std::runtime_error("is damaged: it has an unknown dtype '" + name + "'");
}

// The checksum covers the whole text with zeros in place of the checksum, which is the first entry of that name.
const std::string kNoChecksum(32, '0');

std::string checksum_entry(const std::string& checksum) {
  return "\"checksum\": \"" + checksum + "\"";
}

std::string sealed(std::string text) {
  const std::string entry = checksum_entry(kNoChecksum);
  const size_t at = text.find(entry);
  DSL_CHECK(at != std::string::npos, "a manifest has a place for its checksum");
  return text.replace(at, entry.size(), checksum_entry(content_hash(text.data(), text.size())));
}

void require_unchanged(std::string text, const std::string& checksum) {
  const std::string entry = checksum_entry(checksum);
  const size_t at = text.find(entry);
  if (at != std::string::npos) text.replace(at, entry.size(), checksum_entry(kNoChecksum));
  const std::string found = content_hash(text.data(), text.size());
  if (at == std::string::npos || found != checksum) {
    throw std::runtime_error(
        fmt::format("is damaged: its checksum is {}, but its {} bytes hash to {}", checksum, text.size(), found));
  }
}

// JSON has no infinities; a scalar that is one is kept as text.
Json scalar_to_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double scalar_from_json(const Json& value) {
  if (!value.is_string()) return value.get<double>();
  const auto text = value.get<std::string>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text != "inf" && text != "-inf") throw std::runtime_error("is damaged: it has the number '" + text + "'");
  return text == "inf" ? kInfinity : -kInfinity;
}

// In the format without a checksum any value may occur. The sum of two such counts cannot overflow.
int64_t count_from_json(const Json& json, const char* name, int64_t least = 0, int64_t end = kExactIntegerLimit) {
  const Json& value = json.at(name);
  const bool is_in_range = value.is_number_unsigned() && value.get<uint64_t>() >= static_cast<uint64_t>(least) &&
                           value.get<uint64_t>() < static_cast<uint64_t>(end);
  if (!is_in_range) throw std::runtime_error(fmt::format("is damaged: its '{}' is {}", name, dump_json(value)));
  return value.get<int64_t>();
}

// Of the scalars that docs/checkpoint_format.md lists: the counters and their minimum values.
const std::map<std::string, int64_t, std::less<>> kCounters{
    {"applied_steps", 0},        {"schedule_offset", -kExactIntegerLimit},
    {"loss_scale_iteration", 0}, {"loss_scale_last_overflow", -kExactIntegerLimit},
    {"loss_scale_budget", 0},    {"loss_scale_overflows_in_row", 0},
};

Json parameter_to_json(const SavedTensor& tensor) {
  Json json{{"name", tensor.name},
            {"shape", tensor.shape},
            {"dtype", dtype_name(tensor)},
            {"trainable", tensor.trainable},
            {"buffer", tensor.is_buffer}};
  if (!tensor.aliases.empty()) json["aliases"] = tensor.aliases;
  if (tensor.moments_since != 0) json["moments_since"] = tensor.moments_since;
  return json;
}

// A fraction, a boolean or a number beyond 64 bits would otherwise be read as some integer.
bool is_shape(const Json& json) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& size) {
           return size.is_number_unsigned() && size.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
         });
}

SavedTensor parameter_from_json(const Json& json) {
  SavedTensor tensor;
  tensor.name = json.at("name").get<std::string>();
  if (is_shape(json.at("shape"))) tensor.shape = json["shape"].get<std::vector<int64_t>>();
  tensor.dtype = dtype_from(json.at("dtype").get<std::string>());
  tensor.trainable = json.at("trainable").get<bool>();
  tensor.is_buffer = json.at("buffer").get<bool>();
  if (json.contains("aliases")) tensor.aliases = json["aliases"].get<std::vector<std::string>>();
  if (json.contains("moments_since")) tensor.moments_since = count_from_json(json, "moments_since");
  if (!is_shape(json["shape"]) || !num_bytes_of(tensor.shape, tensor.dtype)) {
    throw std::runtime_error("is damaged: '" + tensor.name + "' has an impossible shape");
  }
  return tensor;
}

CheckpointFile file_from_json(const Json& json) {
  CheckpointFile file{json.at("name").get<std::string>(), static_cast<uint64_t>(count_from_json(json, "bytes")),
                      json.at("xxh3_128").get<std::string>(), json.value("host", "")};
  if (file.name.empty() || file.name.find('/') != std::string::npos) {
    throw std::runtime_error("is damaged: it has the file name '" + file.name + "'");
  }
  return file;
}

Json file_to_json(const CheckpointFile& file) {
  Json json{{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}};
  if (!file.host.empty()) json["host"] = file.host;
  return json;
}

comm::Mesh mesh_from_json(const Json& json, int world_size) {
  const auto ranks = [&](const char* axis) {
    return static_cast<int>(count_from_json(json, axis, 1, int64_t{world_size} + 1));
  };
  const comm::Mesh out{ranks("data"), ranks("pipe"), ranks("tensor")};
  if (int64_t{out.data} * out.pipe > world_size || out.size() != world_size) {
    throw std::runtime_error(fmt::format("is damaged: its mesh is not one of {} ranks", world_size));
  }
  return out;
}

Manifest read(const std::string& text) {
  constexpr size_t kMaxLevels = 8;  // more than a manifest of any format has
  if (nests_deeper(text, kMaxLevels)) {
    throw std::runtime_error("is damaged: its lists nest deeper than those of a manifest");
  }
  const Json json = Json::parse(text);
  const int format = json.at("format").get<int>();
  if (format < 1) throw std::runtime_error(fmt::format("is damaged: its 'format' is {}", format));
  if (format > kCheckpointFormat) {
    throw std::runtime_error(
        fmt::format("has the format {}, written by a newer version of dslaunch; this version reads formats 1 to {}",
                    format, kCheckpointFormat));
  }
  if (format > 1) require_unchanged(text, json.at("checksum").get<std::string>());
  Manifest manifest;
  auto& metadata = manifest.metadata;
  metadata.step = count_from_json(json, "step");
  manifest.world_size =
      static_cast<int>(count_from_json(json, "world_size", 1, int64_t{std::numeric_limits<int>::max()} + 1));
  if (json.contains("mesh")) metadata.mesh = mesh_from_json(json.at("mesh"), manifest.world_size);
  metadata.position = {count_from_json(json.at("data"), "epoch"), count_from_json(json.at("data"), "offset")};
  for (const auto& [name, value] : json.at("scalars").items()) {
    metadata.scalars[name] = scalar_from_json(value);
    const auto counter = kCounters.find(name);
    if (counter != kCounters.end() && !is_count(metadata.scalars[name], counter->second)) {
      throw std::runtime_error(fmt::format("is damaged: its '{}' is {}", name, dump_json(value)));
    }
  }
  metadata.config = json.at("config").get<std::string>();
  metadata.job = json.value("job", "");
  for (const auto& file : json.at("files")) manifest.files.push_back(file_from_json(file));
  for (const auto& parameter : json.at("parameters")) metadata.parameters.push_back(parameter_from_json(parameter));
  return manifest;
}

// `byte`: where the parser stopped, from 1.
std::string describe_syntax_error(const std::string& text, size_t byte) {
  if (text.empty()) return "is damaged: it is empty";
  if (byte > text.size()) return fmt::format("is damaged: it is cut off after {} bytes", text.size());
  return fmt::format("is damaged: unexpected byte {} of {}", byte, text.size());
}

}  // namespace

int64_t SavedTensor::numel() const {
  const auto numel = numel_of(shape);
  DSL_CHECK(numel, fmt::format("'{}' has an impossible shape", name));
  return *numel;
}

std::vector<std::string> SavedTensor::all_names() const {
  std::vector<std::string> names{name};
  names.insert(names.end(), aliases.begin(), aliases.end());
  return names;
}

std::optional<int> rank_with_random_state(const CheckpointMetadata& saved, int saved_world_size, const comm::Mesh& now,
                                          int rank) {
  const comm::Mesh before = saved.mesh.value_or(comm::Mesh{.data = saved_world_size});
  if (before.data == now.data && before.pipe == now.pipe) {
    auto at = now.coordinates(rank);
    if (before.tensor != now.tensor) at.tensor = 0;
    return before.rank_at(at);
  }
  const bool have_tensor_ranks = before.tensor > 1 || now.tensor > 1;
  return !have_tensor_ranks && saved_world_size == now.size() ? std::optional(rank) : std::nullopt;
}

const char* weight_state(const SavedTensor& tensor) {
  return tensor.is_buffer ? "buffer" : tensor.trainable ? "master" : "frozen";
}

int64_t applied_steps(const CheckpointMetadata& metadata) {
  return saved_count(metadata.scalars, "applied_steps", /*least=*/0).value_or(metadata.step);
}

int64_t schedule_offset(const CheckpointMetadata& metadata) {
  return saved_count(metadata.scalars, "schedule_offset", /*least=*/-kExactIntegerLimit).value_or(0);
}

void require_savable(const CheckpointMetadata& metadata) {
  for (const auto& tensor : metadata.parameters) dtype_name(tensor);
}

std::string to_json(const Manifest& manifest) {
  const auto& metadata = manifest.metadata;
  Json json{{"format", kCheckpointFormat},
            {"checksum", kNoChecksum},
            {"program", std::string("dslaunch ") + DSL_VERSION},
            {"step", metadata.step},
            {"world_size", manifest.world_size},
            {"data", {{"epoch", metadata.position.epoch}, {"offset", metadata.position.offset}}},
            {"scalars", Json::object()},
            {"config", metadata.config},
            {"files", Json::array()},
            {"parameters", Json::array()}};
  if (!metadata.job.empty()) json["job"] = metadata.job;
  if (metadata.mesh) {
    const auto& [data, pipe, tensor] = *metadata.mesh;
    json["mesh"] = {{"data", data}, {"pipe", pipe}, {"tensor", tensor}};
  }
  for (const auto& [name, value] : metadata.scalars) json["scalars"][name] = scalar_to_json(value);
  for (const auto& file : manifest.files) json["files"].push_back(file_to_json(file));
  for (const auto& parameter : metadata.parameters) json["parameters"].push_back(parameter_to_json(parameter));
  // A config is the user's text: invalid UTF-8 bytes are replaced rather than losing the checkpoint.
  return sealed(dump_json(json, 1) + "\n");
}

Manifest manifest_from_json(const std::string& text, const std::string& path) {
  auto refused = [&](const std::string& why) {
    return UserError(ExitCode::kBadInput, fmt::format("checkpoint manifest '{}' {}", path, why));
  };
  try {
    return read(text);
  } catch (const Json::parse_error& error) {
    throw refused(describe_syntax_error(text, error.byte));
  } catch (const Json::exception&) {
    throw refused("is damaged: it is JSON, but an entry of a manifest is missing or has the wrong type");
  } catch (const std::exception& error) {
    throw refused(error.what());
  }
}

}  // namespace dslaunch::runtime
