// All keys that a job file may have: DeepSpeed's and ours. The rows are constants; the index over them is built at the
// first lookup. Any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/key_spec.hpp"

namespace dslaunch::config {

// Every row: the supported keys in the order of the documentation, each section followed by its unsupported keys, then
// the sections without any supported key.
const std::vector<const KeySpec*>& all_keys();
std::span<const KeyAlias> all_aliases();

// Whether a file may have the key: it is supported, or is accepted with a note that it has no counterpart here.
bool is_accepted(const KeySpec& row);
// The row with this path as written in the table (with * for user-defined names); null when there is none.
const KeySpec* find_key(std::string_view path);
const KeyAlias* find_alias(std::string_view path);

// Last components of the keys that are accepted directly in a section ("" is the top level), aliases included.
std::vector<std::string> names_in(std::string_view section);
// Paths of keys whose last component is `name`, in any section without * in its path.
std::vector<std::string> paths_of_name(std::string_view name);
// The correct location of a DeepSpeed key that was found in the wrong section; null unless there is exactly one.
const KeySpec* correct_path_of(std::string_view name);

std::string join_path(std::string_view section, std::string_view name);
// "a.b.c" -> "a.b"; "" for a top-level key.
std::string_view section_of(std::string_view path);
std::string_view last_name(std::string_view path);

// The tables of supported keys, one file per group of sections.
std::span<const KeySpec> own_keys();
std::span<const KeySpec> top_level_keys();
std::span<const KeySpec> optimizer_keys();
std::span<const KeySpec> precision_keys();
std::span<const KeySpec> zero_keys();
std::span<const KeySpec> offload_keys();
std::span<const KeySpec> pipeline_keys();
std::span<const KeySpec> tensor_parallel_keys();
std::span<const KeySpec> storage_keys();
std::span<const KeySpec> monitoring_keys();
std::span<const KeySpec> data_efficiency_keys();
// The table of all other keys, in two parts.
std::span<const KeySpec> unsupported_training_keys();
std::span<const KeySpec> unsupported_inference_keys();

}  // namespace dslaunch::config
