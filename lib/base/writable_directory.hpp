// Checks whether a directory, or a file, can be written or created, before hours of work whose result goes there; and
// what a write that failed there needed.
#pragma once
#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace dslaunch {

// Succeeds when the directory, or its nearest existing parent, accepts new entries. Any thread.
Result<> check_writable(const std::string& directory);

// The same for one file. Any thread.
Result<> check_writable_file(const std::string& path);

// The object of a failed write, for SystemError: "'PATH'", and for a full disk what it takes: "'PATH' (1.20 GiB to
// write, 4.00 MiB free)". Any thread.
std::string written_object(const std::string& path, uint64_t bytes_to_write, int error_number);

}  // namespace dslaunch
