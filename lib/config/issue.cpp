#include "config/issue.hpp"

#include "base/format.hpp"
#include "base/printable.hpp"

namespace dslaunch::config {

// Messages contain keys and texts of the file, which may have unprintable characters.
std::string to_line(const Issue& issue) {
  if (issue.source.empty()) return printable(issue.message);
  if (issue.position.line == 0) return printable(fmt::format("{}: {}", issue.source, issue.message));
  return printable(
      fmt::format("{}:{}:{}: {}", issue.source, issue.position.line, issue.position.column, issue.message));
}

std::string_view name_of(Issue::Kind kind) {
  switch (kind) {
    case Issue::Kind::kFile:
      return "file";
    case Issue::Kind::kSyntax:
      return "syntax";
    case Issue::Kind::kUnknownKey:
      return "unknown_key";
    case Issue::Kind::kType:
      return "type";
    case Issue::Kind::kRange:
      return "range";
    case Issue::Kind::kNotYet:
      return "not_supported_yet";
    case Issue::Kind::kConflict:
      return "conflict";
    case Issue::Kind::kBatch:
      return "batch";
    case Issue::Kind::kMesh:
      return "mesh";
  }
  return "unknown";
}

}  // namespace dslaunch::config
