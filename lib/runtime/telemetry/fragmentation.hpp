// Memory that a device's allocator holds but that no tensor used at the peak. Pure.
#pragma once
#include <cstdint>
#include <string>

namespace dslaunch::runtime {

struct Fragmentation {
  int64_t bytes = 0;
  double share = 0;  // of what is reserved
};
// Of peaks in bytes. Both rise to their peaks independently: what is reserved may have grown after the allocations were
// at theirs, so this is the most that it was at that point.
Fragmentation fragmentation_of(int64_t peak_allocated, int64_t peak_reserved);

// "0.50 GiB (3.7%)"
std::string describe(const Fragmentation& fragmentation);
// "13.10 GiB"
std::string in_gibibytes(int64_t bytes);

}  // namespace dslaunch::runtime
