// Files of variables for the ranks' environment: --env_file, and DeepSpeed's .deepspeed_env. Parsing is pure.
//
//     # a comment; blank lines are fine
//     NCCL_DEBUG=INFO
//     export NCCL_SOCKET_IFNAME = eth0      # a comment behind a blank
//     TITLE="two words, \"quoted\", and a line\nbreak"
//     LITERAL='nothing $is {changed} \here'
//
// No shell reads it: $, ` and * mean nothing, also between double quotes.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::launch {

// Name and value in the order of the file; of one name the last counts.
using Assignments = std::vector<std::pair<std::string, std::string>>;

// A value without quotes ends at a '#' behind a blank, or with the line; blanks around it do not belong to it. Between
// double quotes \n \r \t \a \b \f \v \" \' \\ are what they are in C, any other backslash stands for itself. Throws
// UserError(65) with every mistake, of very many the first, as path:line:column; `path` is for those messages.
Assignments parse_env_file(std::string_view text, const std::string& path);

// A letter or underscore, then letters, digits and any of _ . -
bool is_variable_name(std::string_view text);

// The files that DeepSpeed reads without being told: .deepspeed_env in the home folder, then in the current one; those
// that exist. `name` is DS_ENV_FILE, where it is set, a name or a path; then one file at least must exist: throws
// UserError(66).
std::vector<std::string> default_env_files(const std::string& home, const std::string& folder,
                                           const std::optional<std::string>& name);

}  // namespace dslaunch::launch
