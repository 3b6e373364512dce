#include "config/node_paths.hpp"

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::config {
namespace {

bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

size_t name_end(std::string_view text, size_t at) {
  if (at == text.size() || !starts_name(text[at])) return at;
  while (at < text.size() && (starts_name(text[at]) || (text[at] >= '0' && text[at] <= '9'))) ++at;
  return at;
}

struct Reference {
  std::string name;  // empty: the dollar sign is text
  size_t end = 0;    // behind the reference
};

// `dollar`: where a dollar sign is.
Reference reference_at(std::string_view text, size_t dollar) {
  const size_t brace = dollar + 1;
  const bool in_braces = brace < text.size() && text[brace] == '{';
  const size_t begin = in_braces ? brace + 1 : brace, end = name_end(text, begin);
  if (end == begin || (in_braces && (end == text.size() || text[end] != '}'))) return {"", dollar + 1};
  return {std::string(text.substr(begin, end - begin)), in_braces ? end + 1 : end};
}

void expand_one(const char* key, std::string& path, const FindVariable& find) {
  auto expanded = expand_path(path, find);
  if (!expanded.ok()) {
    throw UserError(ExitCode::kBadInput, fmt::format("'{}' \"{}\": {}", key, path, expanded.error()));
  }
  path = *std::move(expanded);
}

void expand_all(const char* key, std::vector<std::string>& paths, const FindVariable& find) {
  for (auto& path : paths) expand_one(key, path, find);
}

}  // namespace

std::optional<std::string> variable_of_this_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

Result<std::string> expand_path(std::string_view path, const FindVariable& find) {
  std::string out;
  const auto append = [&](const std::string& name) {
    const auto value = find(name);
    if (!value || value->empty()) return false;
    out += *value;
    return true;
  };
  const auto missing = [](const std::string& name) {
    return Failure{fmt::format("the variable {} is not set on this node; set it, or write the path in full", name)};
  };
  size_t at = 0;
  if (path == "~" || path.starts_with("~/")) {
    if (!append("HOME")) return missing("HOME");
    at = 1;
  }
  while (at < path.size()) {
    const Reference reference = path[at] == '$' ? reference_at(path, at) : Reference{"", at + 1};
    if (reference.name.empty()) {
      out += path[at];
    } else if (!append(reference.name)) {
      return missing(reference.name);
    }
    at = reference.end;
  }
  return out;
}

void expand_node_paths(JobConfig& config, const FindVariable& find) {
  if (config.init && !config.init->from.empty()) expand_one("init.from", config.init->from, find);
  Zero& zero = config.zero;
  if (zero.offload_optimizer.device == OffloadDevice::kFile) {
    expand_all("zero_optimization.offload_optimizer.nvme_path", zero.offload_optimizer.nvme_path, find);
  }
  if (zero.offload_param.device == OffloadDevice::kFile) {
    expand_all("zero_optimization.offload_param.nvme_path", zero.offload_param.nvme_path, find);
  }
}

}  // namespace dslaunch::config
