// A value of a JSON file with its place in it, so that what is wrong there is named: "model.merges[5]". Refers to the
// document and to the file's name. Any thread.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::runtime::text {

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const std::string& file, std::string place = {})
      : value_(&value), file_(&file), place_(std::move(place)) {}

  // The entry of an object; null when the object lacks it. Fails on other values, but for null, whose entries are null.
  JsonNode operator[](std::string_view key) const;
  bool is_null() const;
  bool is_text() const;
  bool is_list() const;
  // These fail on values of other types. `otherwise` stands for null.
  std::string text() const;
  std::string text(std::string_view otherwise) const;
  bool flag(bool otherwise) const;
  // An id of a token: from 0 to kMaxTokens - 1.
  int64_t id() const;
  std::vector<JsonNode> list() const;                             // of null: empty
  std::vector<std::pair<std::string, JsonNode>> entries() const;  // of null: empty

  // The entry "type" of an object.
  std::string type() const { return (*this)["type"].text(); }

  // Throw UserError(65): a damaged file; a part of the format that we do not know.
  [[noreturn]] void fail(std::string_view clause) const;
  [[noreturn]] void refuse(std::string_view kind) const;

 private:
  const nlohmann::json* value_;
  const std::string* file_;
  std::string place_;
};

inline constexpr int64_t kMaxTokens = int64_t{1} << 22;

// A whole file. Throws UserError(66).
std::string read_tokenizer_file(const std::string& path);
// Throws UserError: 66 when the file cannot be read, 65 when it is not JSON, or nests more deeply than a tokenizer's.
// If `is_optional`, a file that does not exist is null.
nlohmann::json read_json_file(const std::string& path, bool is_optional = false);

// The error for a tokenizer of a kind that is not supported.
[[noreturn]] void refuse_tokenizer(const std::string& file, std::string_view kind);

}  // namespace dslaunch::runtime::text
