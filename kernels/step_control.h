// Device memory that controls an optimizer kernel: whether the step is applied at all, and which coefficients it uses.
// A host that issues steps ahead of the device does not know yet whether the last ones were skipped. It therefore
// passes the coefficients for every possible count of applied steps, and the device selects. See step_control.cuh.
#pragma once
#include <cstdint>

namespace dslaunch::kernels {

// With a table: table[*applied_steps - base] for a counter on the device; a counter outside [base, base + table_size)
// stops the kernel with a trap. Without: `value`.
template <class Values>
struct Coefficients {
  Values value;
  const Values* table = nullptr;           // on the device
  const int64_t* applied_steps = nullptr;  // on the device
  int64_t base = 0;
  int64_t table_size = 0;
};

// What all optimizer kernels read besides their arrays.
struct StepControl {
  const float* gradient_factor = nullptr;  // one float on the device; null: 1
  const float* skip = nullptr;             // one float on the device; if not 0, nothing is written; null: 0
};

}  // namespace dslaunch::kernels
