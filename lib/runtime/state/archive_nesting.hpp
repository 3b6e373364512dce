// How deeply a TorchScript archive nests, before LibTorch reads it. LibTorch's parser, its compiler and the destructors
// of nested values recurse: a crafted file of some kilobytes exhausts the stack, which ends the process without a
// message. In linear time, without recursion. Any thread.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/state/zip_members.hpp"

namespace dslaunch::runtime {

// Refuses an archive whose pickles or code nest far deeper than those of models do. Throws UserError(65) that names
// `path`, which is the archive's, and the record.
void require_shallow(const std::vector<ZipMember>& members, const std::string& path);

// Whether lists, dicts, tuples and objects of a pickle contain each other more than `levels` deep. Texts that LibTorch
// parses as types count as code. Of a damaged pickle the part counts that LibTorch would read.
bool pickle_nests_deeper(std::string_view pickle, size_t levels);

// The line of a TorchScript source where blocks and expressions are inside each other more than `levels` deep.
std::optional<size_t> line_nesting_deeper(const std::string& source, size_t levels);

}  // namespace dslaunch::runtime
