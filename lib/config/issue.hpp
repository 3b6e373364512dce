// The errors in a job file: one line each, with its position. Plain data.
#pragma once
#include <string>
#include <string_view>

#include "config/value.hpp"

namespace dslaunch::config {

struct Issue {
  enum class Kind {
    kFile,    // the file does not exist or cannot be read
    kSyntax,  // includes text that is not an object, and repeated keys
    kUnknownKey,
    kType,
    kRange,
    kNotYet,    // "not supported yet"
    kConflict,  // keys that contradict each other, or that require each other
    kBatch,     // the batch triple cannot be solved
    kMesh,      // the ranks cannot be divided into pipelines: the file contradicts the environment
  };
  Kind kind;
  std::string source;  // the file's name, or "command line"; empty: about the job as a whole
  Position position;   // line 0: none
  std::string key;     // dotted; empty for syntax
  std::string message;
};

// "ds.json:3:5: unknown key …"
std::string to_line(const Issue& issue);
// "syntax", "unknown_key", …: as in the JSON reports.
std::string_view name_of(Issue::Kind kind);

}  // namespace dslaunch::config
