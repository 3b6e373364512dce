// Numbers as Python writes them, for files and lines that users' scripts already read. Pure.
#pragma once
#include <cstdint>
#include <string>

namespace dslaunch::runtime {

// repr(): the shortest text that reads back the same, always with a point or an exponent: "2.0", "1e-05", "nan".
std::string python_float(double value);
// A number of bytes as DeepSpeed shows message sizes: "0B", "1.5 KB", "12.0 MB".
std::string python_size(size_t bytes);
// round(bytes / 2**30, 2).
std::string python_gigabytes(int64_t bytes);
// round(value, 2) followed by %g: "12.35", "100", "0".
std::string python_rounded(double value);

}  // namespace dslaunch::runtime
