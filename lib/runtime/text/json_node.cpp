#include "runtime/text/json_node.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/json_depth.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"

namespace dslaunch::runtime::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{1} << 28, kMaxNesting = 64;
const json kNull;

}  // namespace

void refuse_tokenizer(const std::string& file, std::string_view kind) {
  throw UserError(ExitCode::kBadInput,
                  fmt::format("unsupported tokenizer: '{}': {} is not supported; make ids with 'tools/tokenize "
                              "--tokenizer', which uses Hugging Face's library",
                              file, kind));
}

std::string read_tokenizer_file(const std::string& path) {
  SmallFile file = read_small_file(path, kMaxFileBytes);
  if (file.outcome.ok()) return std::move(file.bytes);
  throw UserError(ExitCode::kNoInput, fmt::format("cannot read tokenizer: '{}': {}", path, file.outcome.error()));
}

json read_json_file(const std::string& path, bool is_optional) {
  std::error_code error;
  if (is_optional && !std::filesystem::exists(path, error)) return {};
  const std::string text = read_tokenizer_file(path);
  json document;
  if (!nests_deeper(text, kMaxNesting)) document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) JsonNode(document, path).fail("it is not a JSON object, or nests too deeply");
  return document;
}

JsonNode JsonNode::operator[](std::string_view key) const {
  const std::string place = place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
  if (value_->is_null()) return {kNull, *file_, place};
  if (!value_->is_object()) fail("expected an object");
  const auto found = value_->find(key);
  return {found == value_->end() ? kNull : *found, *file_, place};
}

bool JsonNode::is_null() const {
  return value_->is_null();
}

bool JsonNode::is_text() const {
  return value_->is_string();
}

bool JsonNode::is_list() const {
  return value_->is_array();
}

std::string JsonNode::text() const {
  if (!value_->is_string()) fail("expected a text");
  return value_->get<std::string>();
}

std::string JsonNode::text(std::string_view otherwise) const {
  return is_null() ? std::string(otherwise) : text();
}

bool JsonNode::flag(bool otherwise) const {
  if (is_null()) return otherwise;
  if (!value_->is_boolean()) fail("expected true or false");
  return value_->get<bool>();
}

int64_t JsonNode::id() const {
  if (!value_->is_number_integer()) fail("expected the id of a token");
  const bool is_too_large = value_->is_number_unsigned() && value_->get<uint64_t>() >= uint64_t{kMaxTokens};
  if (is_too_large || value_->get<int64_t>() < 0) {
    fail(fmt::format("the id {} is outside of 0 to {}", value_->dump(), kMaxTokens - 1));
  }
  return value_->get<int64_t>();
}

std::vector<JsonNode> JsonNode::list() const {
  if (!value_->is_array() && !is_null()) fail("expected a list");
  std::vector<JsonNode> out;
  for (size_t i = 0; i < value_->size(); ++i) {
    out.emplace_back((*value_)[i], *file_, fmt::format("{}[{}]", place_, i));
  }
  return out;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::entries() const {
  if (!value_->is_object() && !is_null()) fail("expected an object");
  std::vector<std::pair<std::string, JsonNode>> out;
  for (const auto& [key, value] : value_->items()) out.emplace_back(key, JsonNode(value, *file_, place_));
  return out;
}

void JsonNode::fail(std::string_view clause) const {
  throw UserError(ExitCode::kBadInput, fmt::format("damaged tokenizer: '{}': {}{}{}", *file_, printable(place_),
                                                   place_.empty() ? "" : ": ", printable(clause)));
}

void JsonNode::refuse(std::string_view kind) const {
  refuse_tokenizer(*file_, fmt::format("{} ({})", printable(kind), printable(place_)));
}

}  // namespace dslaunch::runtime::text
