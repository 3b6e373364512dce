// Files of variables for the ranks' environment: --env_file, and DeepSpeed's .deepspeed_env. Parsing is pure.
//
//     # a comment; blank lines are allowed
//     NCCL_DEBUG=INFO
//     export NCCL_SOCKET_IFNAME = eth0      # a comment after a blank
//     TITLE="two words, \"quoted\", and a line\nbreak"
//     LITERAL='nothing $is {changed} \here'
//
// No shell interprets the file: $, ` and * have no special meaning, also inside double quotes.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::launch {

// Name and value in the order of the file; if a name occurs more than once, its last value wins.
using Assignments = std::vector<std::pair<std::string, std::string>>;

// A value without quotes ends at a '#' that follows a blank, or at the end of the line, and is trimmed of blanks.
// Inside double quotes \n \r \t \a \b \f \v \" \' \\ mean what they mean in C; any other backslash is literal. Throws
// UserError(65) that lists every mistake (only the first ones if there are very many) as path:line:column; `path` is
// used in the messages only.
Assignments parse_env_file(std::string_view text, const std::string& path);

// A letter or underscore, then letters, digits and any of _ . -
bool is_variable_name(std::string_view text);

// The files that DeepSpeed reads by default: .deepspeed_env in the home directory, then in the current directory;
// returns those that exist. `name` is the value of DS_ENV_FILE (a name or a path), if set; then at least one such file
// must exist, else throws UserError(66).
std::vector<std::string> default_env_files(const std::string& home, const std::string& dir,
                                           const std::optional<std::string>& name);

}  // namespace dslaunch::launch
