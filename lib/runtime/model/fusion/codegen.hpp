// The CUDA source of a region's kernel. Pure text; NVRTC compiles it without any header.
//
// A kernel reads each input and writes each output once. Without sums every thread computes a few chunks, `vector`
// columns of one row each. With sums over rows or columns, `threads_per_row` threads share a row and keep what they
// read in registers from one reduction to the next; sums over the rows are collected in registers, one partial sum for
// each group of threads. Where a block computes row after row it fetches the next one early, and what all rows share
// once.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/fusion/ir.hpp"

namespace dslaunch::runtime::model::fusion {

// How the region's tensors lie in memory, as far as the source depends on it.
struct KernelLayout {
  int num_dims = 1;  // of the rows, those that can be merged counted as one; `varies` of the inputs is about these
  int vector = 1;    // columns in one access
  std::vector<bool> has_column_stride;  // by input: columns do not lie side by side; only with vector 1
  bool notes_maxima = false;            // of the outputs that has_maximum() names
  bool operator==(const KernelLayout&) const = default;
};

struct KernelSource {
  std::string text;
  int threads = 0;  // of a block
  int threads_per_row = 0;
  int64_t chunks_per_row = 0;         // accesses of `vector` columns
  int chunks_per_thread = 1;          // with one thread a row and no sums
  bool loops_over_rows = false;       // a block computes several groups of rows, one after the other
  int blocks_per_multiprocessor = 1;  // with loops_over_rows: that run at once

  int rows_per_block() const { return threads / threads_per_row; }
};

// The kernel's name in the source. Its only parameter is a struct of 64-bit values, in this order:
//   rows; size[num_dims]; for each input: pointer, stride[num_dims], column stride; for each output: pointer,
//   stride[num_dims]; with notes_maxima: a pointer to kMaximumSize zeros (device/fp8_maxima.hpp) for each output that
//   has a maximum
// Strides are in elements. An output that is summed over rows points to fp32 partials[blocks * rows_per_block][width].
inline constexpr char kKernelName[] = "region_kernel";

// Whether the largest magnitude of an output can be found: in bf16, with a row for each row.
bool has_maximum(const Region& region, const Output& output);

// The largest number of columns in one access for which columns that are cut or joined stay whole.
int largest_vector(const Region& region);

// The failure says what has no kernel: fp64, too much code.
Result<KernelSource> kernel_source(const Region& region, const KernelLayout& layout);

// The parts of a source, of which codegen_instruction.cpp has one instruction, the types and the functions.

// Types of two bytes, loads of whole packs, sums and maxima within a warp. `fast`: sigmoid and tanh by the hardware's
// approximations, whose errors are below bf16's.
std::string device_functions(bool fast);

// Of layout.notes_maxima: a thread's largest magnitude into the slots of an output.
std::string note_function();

// Null: a type without kernels.
const char* type_name(at::ScalarType type);

// A constant in fp32, exact by its 9 digits.
std::string literal(double number);

// The operation on operands that are fp32 expressions.
std::string expression(const Instruction& node, const std::vector<std::string>& x);

}  // namespace dslaunch::runtime::model::fusion
