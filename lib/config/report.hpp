// The output of `dslaunch config check` and `config explain`, and the resolved job file that a run writes. Pure
// functions of a LoadResult. JSON texts are one document each, without a trailing newline.
#pragma once
#include <string>

#include "config/load.hpp"

namespace dslaunch::config {

// {"ok": …, "file": …, "world_size": …, "batch": {…}, "errors": [{file, line, column, key, kind, message}], "notes":
// […]}
std::string check_json(const LoadResult& result);
// One line per error, then the notes and a verdict.
std::string check_text(const LoadResult& result);

// Every key: {"keys": {"zero_optimization.stage": {"value": 1, "origin": "file", "effect": …, "status": …}, …}, and the
// fields of check_json except "ok"}. "line" and "column" if the key is from the file. After a syntax error: no keys.
std::string explain_json(const LoadResult& result);
std::string explain_text(const LoadResult& result);

// Every supported key with its final value, and every other key that was given: loads again to the same JobConfig for
// the same number of ranks. Requires result.ok().
std::string resolved_json(const LoadResult& result);

}  // namespace dslaunch::config
