// The text of a hostfile, in the forms of DeepSpeed and Open MPI, as entries. Pure but for read_hostfile.
//
//     # comment
//     node1 slots=8                 node2 slots=8 max_slots=8
//     alice@node3:2222 slots=4      [fe80::1]:2222 slots=4      node4 port=2222 slots=4
//     n[01-03,7] slots=8            ranges, as in Slurm
//     node5                         one slot; a bare name that is repeated counts up
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "hostfile/allocation.hpp"

namespace dslaunch::hostfile {

// One host of the file, with slots 0 .. n-1.
struct Entry {
  Host host;
  int line = 0;               // of its first mention, from 1
  bool slots_stated = false;  // false: listed once as a bare name, so the file does not say how many it has
};

// More slots than any machine has are a slip of the keyboard.
constexpr int kMaxSlots = 4096;

// What a hostfile takes for the name of a host: letters, digits, '.', '-' and '_', no '-' in front, not too long.
bool is_host_name(std::string_view name);

// Entries in the order of their first mention. Throws UserError(65) that lists the mistakes with line and column;
// `path` is for those messages.
std::vector<Entry> parse_hostfile(std::string_view text, const std::string& path);

// Reads (a pipe too) and parses. Throws UserError: 66 when there is no such file or it cannot be read, 65 when it is
// far too large.
std::vector<Entry> read_hostfile(const std::string& path);

}  // namespace dslaunch::hostfile
