// The output of `dslaunch config check` and `config explain`, and the resolved job file that a run writes. Pure
// functions of a LoadResult. JSON texts are one document each, without a trailing newline.
#pragma once
#include <string>
#include <vector>

#include "config/load.hpp"

namespace dslaunch::config {

// {"ok": …, "file": …, "world_size": …, "batch": {…}, "errors": [{file, line, column, key, kind, message}], "notes":
// […]}
std::string check_json(const LoadResult& result);
// One line per error, then the notes and a verdict.
std::string check_text(const LoadResult& result);

// Which keys `explain` lists.
struct KeyChoice {
  std::string path;      // this key, or the keys of this section; empty: all
  bool changed = false;  // only those that have another value than the default
  bool all = false;      // as text: also keys without effect that were not given
};

// The chosen keys: {"keys": {"zero_optimization.stage": {"value": 1, "origin": "file", "effect": …, "status": …}, …},
// and the fields of check_json except "ok"}. "line" and "column" if the key is from the file. After a syntax error: no
// keys.
std::string explain_json(const LoadResult& result, const KeyChoice& choice = {});
// Sections with their keys, one below the other, for a terminal of 100 columns.
std::string explain_text(const LoadResult& result, const KeyChoice& choice = {});

// The key or section that a user means by `name`: its path, another name of it, or the last part of one path only.
// Throws UserError(64) with the nearest ones.
std::string find_key_by_name(const std::string& name);

// Every supported key with its final value, and every other key that was given: loads again to the same JobConfig for
// the same number of ranks. Requires result.ok().
std::string resolved_json(const LoadResult& result);

// The keys that were given as "auto", in the order in which they were given: in resolved_json() they have the values
// that they became, or the text auto where those depend on model, device or data.
std::vector<std::string> auto_keys(const LoadResult& result);

}  // namespace dslaunch::config
