// Parses the text of a hostfile, in the formats of DeepSpeed and Open MPI, into entries. Pure except for read_hostfile.
//
//     # comment
//     node1 slots=8                 node2 slots=8 max_slots=8
//     alice@node3:2222 slots=4      [fe80::1]:2222 slots=4      node4 port=2222 slots=4
//     n[01-03,7] slots=8            ranges, as in Slurm
//     node5                         one slot; each repetition of a bare name adds one slot
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
  bool slots_stated = false;  // false: listed once as a bare name, so the file does not state the number of slots
  bool port_may_mean_slots = false;  // written NAME:8, which in machine files of MPICH and Intel MPI means 8 slots
};

// No machine has more slots; a larger number is a typing error.
constexpr int kMaxSlots = 4096;

// A valid host name in a hostfile: letters, digits, '.', '-' and '_', not starting with '-', not too long.
bool is_host_name(std::string_view name);

// Entries in the order of their first mention. Throws UserError(65) that lists the mistakes with line and column;
// `path` is used in the messages only.
std::vector<Entry> parse_hostfile(std::string_view text, const std::string& path);

// A line for the user about ports that may be meant as numbers of slots; empty if there is none.
std::string note_doubtful_ports(const std::vector<Entry>& entries, const std::string& path);

// Reads the file (or a pipe) and parses it. Throws UserError: 66 when the file does not exist or cannot be read, 65
// when it is far too large.
std::vector<Entry> read_hostfile(const std::string& path);

}  // namespace dslaunch::hostfile
