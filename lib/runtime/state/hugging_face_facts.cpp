#include "runtime/state/hugging_face_facts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/model_archive.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;
using Names = std::map<std::string, std::string>;

struct Damaged {};

std::string text_or_empty(const Json& json, const char* key) {
  return json.contains(key) && !json[key].is_null() ? json[key].get<std::string>() : std::string();
}

std::string document_or_empty(const Json& json, const char* key) {
  return json.contains(key) && !json[key].is_null() ? dump_json(json[key], 2) + "\n" : std::string();
}

HuggingFacePiece read_piece(const Json& json) {
  HuggingFacePiece out;
  out.name = json.at("name").get<std::string>();
  out.is_whole = !json.contains("shape");
  if (out.is_whole) return out;
  out.offset = json.at("offset").get<int64_t>();
  out.shape = json.at("shape").get<std::vector<int64_t>>();
  out.strides = json.at("strides").get<std::vector<int64_t>>();
  if (!storage_extent(out.shape, out.strides, out.offset)) throw Damaged();
  return out;
}

HuggingFaceAdapter read_adapter(const Json& json) {
  HuggingFaceAdapter out;
  if (!json.at("config").is_object()) throw Damaged();
  out.config = dump_json(json.at("config"), 2);
  out.source = text_or_empty(json, "source");
  out.parameters = json.at("parameters").get<Names>();
  for (const auto& [weight, merge] : json.at("merges").items()) {
    out.merges[weight] = {merge.at("a").get<std::string>(), merge.at("b").get<std::string>(),
                          merge.at("scaling").get<double>(), merge.at("transposed").get<bool>()};
  }
  out.not_mergeable = json.at("not_mergeable").get<std::vector<std::string>>();
  return out;
}

HuggingFaceFacts read_facts(const Json& json) {
  HuggingFaceFacts out;
  const auto& source = json.at("source");
  out.source_kind = source.at("kind").get<std::string>();
  out.source_name = source.at("name").get<std::string>();
  out.revision = text_or_empty(source, "revision");
  out.model_class = text_or_empty(json, "class");
  if (!json.at("config").is_object()) throw Damaged();
  out.config = dump_json(json.at("config"), 2);
  out.generation_config = document_or_empty(json, "generation_config");
  out.parameters = json.at("parameters").get<Names>();
  out.tied = json.at("tied").get<Names>();
  for (const auto& [name, pieces] : json.at("files").items()) {
    for (const auto& piece : pieces) out.files[name].push_back(read_piece(piece));
  }
  out.unmapped = json.at("unmapped").get<std::vector<std::string>>();
  if (json.contains("adapter")) out.adapter = read_adapter(json.at("adapter"));
  return out;
}

}  // namespace

int64_t HuggingFacePiece::numel() const {
  return numel_of(shape).value();
}

int64_t HuggingFacePiece::end() const {
  return std::max(offset, storage_extent(shape, strides, offset).value());
}

bool HuggingFacePiece::is_contiguous() const {
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0; expected *= shape[i]) {
    if (shape[i] != 1 && strides[i] != expected) return false;
  }
  return true;
}

std::vector<HuggingFacePiece> HuggingFaceFacts::pieces_of(const std::string& state_name) const {
  const auto listed = files.find(state_name);
  if (listed != files.end()) return listed->second;
  HuggingFacePiece whole;
  whole.name = state_name;
  return {whole};
}

std::optional<HuggingFaceFacts> read_hugging_face_facts(const std::string& text, const std::string& path) {
  if (text.empty()) return std::nullopt;
  try {
    const auto record = Json::parse(text);
    if (!record.contains("hugging_face")) return std::nullopt;
    return read_facts(record.at("hugging_face"));
  } catch (const Json::exception&) {
  } catch (const Damaged&) {
  }
  refuse_model(path, fmt::format("has damaged metadata (\"hugging_face\" in the record extra/{})", kModelMetadataName));
}

}  // namespace dslaunch::runtime
