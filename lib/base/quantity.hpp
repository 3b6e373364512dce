// Numbers as people read them. Pure.
#pragma once
#include <cstdint>
#include <string>

namespace dslaunch {

// "635 kFLOP"
std::string quantity(int64_t count, const char* unit);
// "2,783,959,040"
std::string with_separators(int64_t count);

}  // namespace dslaunch
