// Is there a CUDA device and its module? Where not, it says "not run", which ctest shows as a skipped test.
#pragma once
#include <ATen/Context.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "comm/modules.hpp"

namespace dslaunch::test {

inline bool has_device() {
  try {
    comm::cuda_module();
  } catch (const UserError& error) {
    WARN("not run: " << error.what());
    return false;
  }
  if (at::globalContext().hasCUDA()) return true;
  WARN("not run: no CUDA device here");
  return false;
}

}  // namespace dslaunch::test
