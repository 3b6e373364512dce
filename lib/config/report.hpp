// What `dslaunch config check` and `config explain` print, and the resolved job file that a run leaves behind.
// Pure functions of a LoadResult. JSON texts are one document each, without a line break at the end.
#pragma once
#include <string>

#include "config/load.hpp"

namespace dslaunch::config {

// {"ok": …, "file": …, "world_size": …, "batch": {…}, "errors": [{file, line, column, key, kind, message}], "notes":
// […]}
std::string check_json(const LoadResult& result);
// One line an error, then the notes and a verdict.
std::string check_text(const LoadResult& result);

// Every key: {"keys": {"zero_optimization.stage": {"value": 1, "origin": "file", "effect": …, "status": …}, …}, and
// what check_json has, less "ok"}. "line" and "column" where the file gave the key. After a syntax error: no keys.
std::string explain_json(const LoadResult& result);
std::string explain_text(const LoadResult& result);

// Every supported key with its final value, and whatever else was given: loads again to the same JobConfig for the
// same number of ranks. Needs result.ok().
std::string resolved_json(const LoadResult& result);

}  // namespace dslaunch::config
