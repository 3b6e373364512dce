#include "runtime/engine/inference/prompts.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/input_file.hpp"
#include "base/parse_int.hpp"
#include "base/small_file.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

using nlohmann::json;

constexpr size_t kMaxBytes = size_t{1} << 30;

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw UserError(ExitCode::kBadInput, fmt::format("{}: {}", where, why));
}

std::vector<int64_t> ids_of(const json& list, const std::string& where) {
  if (!list.is_array()) refuse(where, "the ids are not a list");
  std::vector<int64_t> out;
  for (const json& id : list) {
    if (!id.is_number_integer()) refuse(where, "an id is not a whole number: " + id.dump());
    out.push_back(id.get<int64_t>());
  }
  return out;
}

std::string text_of(const json& object, const char* name, const std::string& where) {
  if (!object[name].is_string()) refuse(where, fmt::format("\"{}\" is not a text", name));
  return object[name].get<std::string>();
}

std::optional<int64_t> num_tokens_of(const json& object, const std::string& where) {
  if (!object.contains("num_tokens")) return std::nullopt;
  const json& count = object["num_tokens"];
  if (!count.is_number_integer() || count.get<int64_t>() < 1) {
    refuse(where, "\"num_tokens\" is not a whole number of at least 1: " + count.dump());
  }
  return count.get<int64_t>();
}

Prompt from_json(const std::string& line, const std::string& where) {
  const json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (value.is_string()) return {value.get<std::string>(), {}, false, where};
  if (!value.is_object()) refuse(where, "expected a JSON text, or an object with \"prompt\" or \"ids\"");
  std::optional<std::string> reference;
  if (value.contains("reference")) reference = text_of(value, "reference", where);
  const auto num_tokens = num_tokens_of(value, where);
  for (const char* name : {"ids", "input_ids"}) {
    if (!value.contains(name)) continue;
    const std::string text = value.contains("prompt") ? text_of(value, "prompt", where) : std::string();
    return {text, ids_of(value[name], where), true, where, reference, num_tokens};
  }
  for (const char* name : {"prompt", "text"}) {
    if (value.contains(name)) return {text_of(value, name, where), {}, false, where, reference, num_tokens};
  }
  refuse(where, "the object has neither \"prompt\" nor \"ids\"");
}

// Lines that are not empty, each with its number.
void for_each_line(const std::string& text, const std::function<void(size_t number, std::string line)>& take) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    begin = end + 1;
    number += 1;
    if (line.find_first_not_of(" \t") != line.npos) take(number, std::move(line));
  }
}

}  // namespace

std::vector<int64_t> parse_ids(const std::string& text, const std::string& option) {
  std::vector<int64_t> out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find_first_of(", ", begin), text.size());
    if (end > begin) {
      const auto id = parse_int<int64_t>(text.substr(begin, end - begin));
      if (!id || *id < 0) {
        throw UserError(ExitCode::kUsage, fmt::format("{} '{}': expected ids of tokens, as 1,2,3", option, text));
      }
      out.push_back(*id);
    }
    begin = end + 1;
  }
  return out;
}

std::vector<Prompt> parse_prompts(const std::string& lines, const std::function<std::string(size_t number)>& where) {
  std::vector<Prompt> out;
  for_each_line(lines, [&](size_t number, const std::string& line) {
    out.push_back(from_json(line, where(number)));
    if (out.back().text.empty() && out.back().ids.empty()) refuse(where(number), "the prompt is empty");
  });
  return out;
}

std::vector<Prompt> read_prompts(const std::string& path) {
  open_input_file(path, "file of prompts");
  const auto file = read_small_file(path, kMaxBytes);
  if (file.too_large || !file.outcome.ok()) {
    throw UserError(ExitCode::kNoInput, fmt::format("cannot read the file of prompts '{}': {}", path,
                                                    file.too_large ? "it has more than 1 GiB" : file.outcome.error()));
  }
  const std::string& text = file.bytes;
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = path.ends_with(".jsonl") || (first != text.npos && (text[first] == '{' || text[first] == '"'));
  const auto where = [&](size_t number) { return fmt::format("line {} of '{}'", number, path); };
  std::vector<Prompt> out;
  if (is_json) {
    out = parse_prompts(text, where);
  } else {
    for_each_line(text, [&](size_t number, std::string line) {
      out.push_back({std::move(line), {}, false, where(number)});
    });
  }
  if (out.empty()) throw UserError(ExitCode::kBadInput, fmt::format("the file of prompts '{}' has none", path));
  return out;
}

}  // namespace dslaunch::runtime::engine::inference
